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

// requestsOfAgent is an audit policy for a managed cluster. It logs all API requests of the agent,
// with and without impersonation, because the policy matches the authenticated user. For Secrets
// and SubjectAccessReviews, it also logs the bodies of requests and responses.
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

// requests contains the events of a part of an audit log.
type requests []auditv1.Event

// now returns a position in the audit log of the managed cluster. All events of earlier requests are
// before this position.
func (s *fixture) now() int64 {
	s.t.Helper()
	s.fence()
	return framework.Must(localhub.AuditEnd(s.Members[0].AuditLog()))(s.t)
}

// since returns the agent's requests from a position of the audit log to now.
func (s *fixture) since(position int64) requests {
	s.t.Helper()
	s.fence()
	events, _, err := localhub.ReadAudit(s.Members[0].AuditLog(), position)
	if err != nil {
		s.t.Fatal(err)
	}
	return slices.DeleteFunc(events, func(event auditv1.Event) bool { return event.User.Username != agentOnManaged })
}

// fence waits until the audit log contains all requests that were answered before the call. It
// sends a request and waits for its event.
func (s *fixture) fence() {
	s.t.Helper()
	path := s.Members[0].AuditLog()
	position := framework.Must(localhub.AuditEnd(path))(s.t)
	name := fmt.Sprintf("fence-%d", time.Now().UnixNano())
	if _, err := s.ManagedClient.CoreV1().ConfigMaps(fences).Get(s.t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		s.t.Fatalf("get ConfigMap %s/%s = %v, want NotFound", fences, name, err)
	}
	framework.Eventually(s.t, "the audit log contains the request for "+name, func(context.Context) error {
		events, _, err := localhub.ReadAudit(path, position)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(events, func(event auditv1.Event) bool { return event.ObjectRef != nil && event.ObjectRef.Name == name }) {
			return errors.New("no such event")
		}
		return nil
	})
}

// writing contains the verbs of writes.
var writing = []string{"create", "update", "patch", "delete", "deletecollection"}

// of returns the requests for a resource in a namespace, for any name. It excludes lists and
// watches of all namespaces.
func (r requests) of(resource, namespace string) requests {
	return r.filter(func(event *auditv1.Event) bool {
		return event.ObjectRef.Resource == resource && event.ObjectRef.Namespace == namespace
	})
}

// named returns the requests for objects with a name.
func (r requests) named(name string) requests {
	return r.filter(func(event *auditv1.Event) bool { return event.ObjectRef.Name == name })
}

// verbs returns the requests with one of the verbs.
func (r requests) verbs(verbs ...string) requests {
	return r.filter(func(event *auditv1.Event) bool { return slices.Contains(verbs, event.Verb) })
}

// asItself returns the requests without impersonation, with the permissions of the agent.
func (r requests) asItself() requests {
	return r.filter(func(event *auditv1.Event) bool { return event.ImpersonatedUser == nil })
}

// as returns the requests that impersonate a ServiceAccount.
func (r requests) as(account types.NamespacedName) requests {
	name := executorName(account)
	return r.filter(func(event *auditv1.Event) bool {
		return event.ImpersonatedUser != nil && event.ImpersonatedUser.Username == name
	})
}

// impersonating returns the requests that impersonate any user.
func (r requests) impersonating() requests {
	return r.filter(func(event *auditv1.Event) bool { return event.ImpersonatedUser != nil })
}

// done returns the successful requests.
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

// no fails the test if some contains requests.
func (s *fixture) no(what string, some requests) {
	s.t.Helper()
	if len(some) > 0 {
		s.t.Errorf("%s, want none:\n\t%s", what, some)
	}
}

// some fails the test if some contains no requests.
func (s *fixture) some(what string, some, among requests) {
	s.t.Helper()
	if len(some) == 0 {
		s.t.Errorf("%s = none, want at least one among:\n\t%s", what, among)
	}
}

// untouched checks that the agent has sent no request for the fixture's namespace since a position.
// It excludes watches of all namespaces, and reviews.
func (s *fixture) untouched(position int64) {
	s.t.Helper()
	there := s.since(position).filter(func(event *auditv1.Event) bool {
		return event.ObjectRef.Namespace == s.namespace && event.ObjectRef.APIGroup != "authorization.k8s.io"
	})
	s.no("requests in namespace "+s.namespace, there)
}
