package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// requestsOfAgent is an audit policy for a managed cluster that logs whatever its
// agent does, as itself or as somebody else: the policy goes by who authenticates.
// What it gets to see of Secrets is logged with the content.
const requestsOfAgent = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: ["RequestReceived"]
rules:
- level: RequestResponse
  users: ["` + agentOnManaged + `"]
  resources:
  - group: ""
    resources: ["secrets"]
  - group: authorization.k8s.io
    resources: ["subjectaccessreviews"]
- level: None
  users: ["` + agentOnManaged + `"]
  nonResourceURLs: ["*"]
- level: Metadata
  users: ["` + agentOnManaged + `"]
- level: Metadata
  namespaces: ["` + fences + `"]
- level: None
`

// requests are what an audit log has of a while.
type requests []auditv1.Event

// now is a place in the audit log of the managed cluster.
func (s *scene) now() int64 {
	s.t.Helper()
	s.fence()
	return framework.Must(localhub.AuditEnd(s.Members[0].AuditLog()))(s.t)
}

// since are the agent's requests from a place of the audit log to now.
func (s *scene) since(place int64) requests {
	s.t.Helper()
	s.fence()
	events, _, err := localhub.ReadAudit(s.Members[0].AuditLog(), place)
	if err != nil {
		s.t.Fatal(err)
	}
	return slices.DeleteFunc(events, func(event auditv1.Event) bool { return event.User.Username != agentOnManaged })
}

// fence returns when the audit log has what has been answered before.
func (s *scene) fence() {
	s.t.Helper()
	path := s.Members[0].AuditLog()
	place := framework.Must(localhub.AuditEnd(path))(s.t)
	name := fmt.Sprintf("fence-%d", time.Now().UnixNano())
	if _, err := s.ManagedClient.CoreV1().ConfigMaps(fences).Get(s.t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		s.t.Fatalf("a fence of the audit log: %v", err)
	}
	framework.Eventually(s.t, "the audit log has what was done before", func(context.Context) error {
		events, _, err := localhub.ReadAudit(path, place)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(events, func(event auditv1.Event) bool { return event.ObjectRef != nil && event.ObjectRef.Name == name }) {
			return errors.New("it has not got there")
		}
		return nil
	})
}

// writing are the verbs that change something.
var writing = []string{"create", "update", "patch", "delete", "deletecollection"}

// of are the requests for a resource, of any name, in a namespace; a list or watch of
// all namespaces is none of them.
func (r requests) of(resource, namespace string) requests {
	return r.filter(func(event *auditv1.Event) bool {
		return event.ObjectRef.Resource == resource && event.ObjectRef.Namespace == namespace
	})
}

// named are the requests for objects of a name.
func (r requests) named(name string) requests {
	return r.filter(func(event *auditv1.Event) bool { return event.ObjectRef.Name == name })
}

// verbs are the requests with one of these verbs.
func (r requests) verbs(verbs ...string) requests {
	return r.filter(func(event *auditv1.Event) bool { return slices.Contains(verbs, event.Verb) })
}

// asItself are those of the agent with its own permissions.
func (r requests) asItself() requests {
	return r.filter(func(event *auditv1.Event) bool { return event.ImpersonatedUser == nil })
}

// as are those of the agent with the permissions of a ServiceAccount.
func (r requests) as(account types.NamespacedName) requests {
	name := executorName(account)
	return r.filter(func(event *auditv1.Event) bool {
		return event.ImpersonatedUser != nil && event.ImpersonatedUser.Username == name
	})
}

// impersonating are those of the agent with the permissions of anybody else.
func (r requests) impersonating() requests {
	return r.filter(func(event *auditv1.Event) bool { return event.ImpersonatedUser != nil })
}

// done are those that were answered with success.
func (r requests) done() requests {
	return r.filter(func(event *auditv1.Event) bool { return event.ResponseStatus != nil && event.ResponseStatus.Code < 300 })
}

func (r requests) filter(keep func(*auditv1.Event) bool) requests {
	var kept requests
	for i := range r {
		if r[i].ObjectRef != nil && keep(&r[i]) {
			kept = append(kept, r[i])
		}
	}
	return kept
}

func (r requests) String() string {
	var lines []string
	for _, event := range r {
		who, code := event.User.Username, int32(0)
		if event.ImpersonatedUser != nil {
			who += " as " + event.ImpersonatedUser.Username
		}
		if event.ResponseStatus != nil {
			code = event.ResponseStatus.Code
		}
		lines = append(lines, fmt.Sprintf("%d %s %s by %s", code, event.Verb, event.RequestURI, who))
	}
	return strings.Join(lines, "\n\t")
}

// no fails the test if there are any.
func (s *scene) no(what string, some requests) {
	s.t.Helper()
	if len(some) > 0 {
		s.t.Errorf("%s:\n\t%s", what, some)
	}
}

// some fails the test if there are none.
func (s *scene) some(what string, some, among requests) {
	s.t.Helper()
	if len(some) == 0 {
		s.t.Errorf("there is no %s among\n\t%s", what, among)
	}
}

// untouched fails the test if, since then, anybody but the test has written in the
// scene's namespace, or read there other than by watching metadata.
func (s *scene) untouched(place int64) {
	s.t.Helper()
	there := s.since(place).filter(func(event *auditv1.Event) bool {
		return event.ObjectRef.Namespace == s.namespace && event.ObjectRef.APIGroup != "authorization.k8s.io"
	})
	s.no("requests in "+s.namespace, there)
}
