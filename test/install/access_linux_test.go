package install

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/component-helpers/auth/rbac/validation"

	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// allRequests logs every request, with the content of those in which an API server or a server of ours
// makes further decisions.
const allRequests = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Request
  resources:
  - group: rbac.authorization.k8s.io
  - group: authorization.k8s.io
  - group: certificates.k8s.io
- level: Metadata
`

// reading and changing are verbs of which a client uses some for all: list instead of watch, or update instead of patch.
var (
	reading  = []string{"get", "list", "watch"}
	changing = []string{"update", "patch"}
)

// access compares the permissions of an identity with its requests.
type access struct {
	rules []rbacv1.PolicyRule
	// unused are the permissions that no request has used yet, by their description.
	unused map[string][]rbacv1.PolicyRule
	// denied and allowed are requests by their description.
	denied, allowed map[string]bool
}

// newAccess returns the permissions in ClusterRoles of a site, and in Roles (NAMESPACE/NAME).
func (s *site) newAccess(t *testing.T, roles ...string) *access {
	t.Helper()
	a := &access{unused: map[string][]rbacv1.PolicyRule{}, denied: map[string]bool{}, allowed: map[string]bool{}}
	for _, role := range roles {
		rules := s.rulesOf(t, role)
		a.rules = append(a.rules, rules...)
		for _, rule := range rules {
			for _, part := range validation.BreakdownRule(rule) {
				same := part
				if slices.Contains(reading, part.Verbs[0]) {
					same.Verbs = []string{"read"}
				} else if slices.Contains(changing, part.Verbs[0]) {
					same.Verbs = []string{"change"}
				}
				name := role + ": " + describe(same)
				a.unused[name] = append(a.unused[name], part)
			}
		}
	}
	return a
}

func (s *site) rulesOf(t *testing.T, role string) []rbacv1.PolicyRule {
	t.Helper()
	if namespace, name, ok := strings.Cut(role, "/"); ok {
		found, err := s.kube.RbacV1().Roles(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return found.Rules
	}
	found, err := s.kube.RbacV1().ClusterRoles().Get(t.Context(), role, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return found.Rules
}

func describe(rule rbacv1.PolicyRule) string {
	words := slices.Concat(rule.Verbs, rule.Resources, rule.NonResourceURLs)
	if len(rule.APIGroups) > 0 && rule.APIGroups[0] != "" {
		words[1] += "." + rule.APIGroups[0]
	}
	return strings.TrimSpace(strings.Join(append(words, rule.ResourceNames...), " "))
}

func covers(rules []rbacv1.PolicyRule, request rbacv1.PolicyRule) bool {
	covered, _ := validation.Covers(rules, []rbacv1.PolicyRule{request})
	return covered
}

// use marks the rules that allow a request.
func (a *access) use(request rbacv1.PolicyRule) {
	maps.DeleteFunc(a.unused, func(_ string, rules []rbacv1.PolicyRule) bool {
		return slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool {
			return covers([]rbacv1.PolicyRule{rule}, request)
		})
	})
}

// read marks the rules that the requests of users in an audit log use, and notes the requests that were denied.
func (a *access) read(t *testing.T, log string, is func(user string, groups []string) bool) {
	t.Helper()
	events, _, err := localhub.ReadAudit(log, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range events {
		event := &events[i]
		if review := reviewed(t, event); review != nil && is(review.User, review.Groups) {
			a.use(fromReview(review))
		}
		if !is(event.User.Username, event.User.Groups) {
			continue
		}
		request := fromEvent(event)
		if event.Annotations["authorization.k8s.io/decision"] == "forbid" {
			a.denied[withoutName(request)] = true
			continue
		}
		a.allowed[withoutName(request)] = true
		a.use(request)
		if event.ImpersonatedUser != nil {
			namespace, name, err := serviceaccount.SplitUsername(event.ImpersonatedUser.Username)
			if err != nil {
				t.Fatalf("impersonated user %s in namespace %s: %v", event.ImpersonatedUser.Username, namespace, err)
			}
			a.use(rbacv1.PolicyRule{Verbs: []string{"impersonate"}, APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, ResourceNames: []string{name}})
		}
		for _, held := range implied(t, event) {
			a.use(held)
			if !covers(a.rules, held) {
				a.use(rbacv1.PolicyRule{Verbs: []string{"escalate"}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{event.ObjectRef.Resource}})
			}
		}
	}
}

// withoutName describes a request. An API server notes the names of created objects only if it allows the request.
// An informer whose first watch is denied lists, and its next watch needs no list.
func withoutName(request rbacv1.PolicyRule) string {
	request.ResourceNames = nil
	if slices.Equal(request.Verbs, []string{"list"}) {
		request.Verbs = []string{"watch"}
	}
	return describe(request)
}

func fromEvent(event *auditv1.Event) rbacv1.PolicyRule {
	rule := rbacv1.PolicyRule{Verbs: []string{event.Verb}}
	if event.ObjectRef == nil {
		rule.NonResourceURLs = []string{event.RequestURI}
		if address, err := url.Parse(event.RequestURI); err == nil {
			rule.NonResourceURLs[0] = address.Path
		}
		return rule
	}
	resource := event.ObjectRef.Resource
	if event.ObjectRef.Subresource != "" {
		resource += "/" + event.ObjectRef.Subresource
	}
	rule.APIGroups, rule.Resources = []string{event.ObjectRef.APIGroup}, []string{resource}
	if event.ObjectRef.Name != "" {
		rule.ResourceNames = []string{event.ObjectRef.Name}
	}
	return rule
}

// reviewed returns the content of a SubjectAccessReview.
func reviewed(t *testing.T, event *auditv1.Event) *authorizationv1.SubjectAccessReviewSpec {
	t.Helper()
	if event.ObjectRef == nil || event.ObjectRef.Resource != "subjectaccessreviews" || event.RequestObject == nil {
		return nil
	}
	var review authorizationv1.SubjectAccessReview
	if err := json.Unmarshal(event.RequestObject.Raw, &review); err != nil {
		t.Fatal(err)
	}
	return &review.Spec
}

func fromReview(spec *authorizationv1.SubjectAccessReviewSpec) rbacv1.PolicyRule {
	if path := spec.NonResourceAttributes; path != nil {
		return rbacv1.PolicyRule{Verbs: []string{path.Verb}, NonResourceURLs: []string{path.Path}}
	}
	attributes := spec.ResourceAttributes
	rule := rbacv1.PolicyRule{Verbs: []string{attributes.Verb}, APIGroups: []string{attributes.Group}, Resources: []string{attributes.Resource}}
	if attributes.Subresource != "" {
		rule.Resources[0] += "/" + attributes.Subresource
	}
	if attributes.Name != "" {
		rule.ResourceNames = []string{attributes.Name}
	}
	return rule
}

// implied returns the permissions that the API server requires for a request in addition to that of the request: who
// writes a role needs its rules, who binds a role needs bind or its rules, and who approves a request for a
// certificate needs approve for its signer.
func implied(t *testing.T, event *auditv1.Event) []rbacv1.PolicyRule {
	t.Helper()
	if event.RequestObject == nil || event.ObjectRef == nil || event.ResponseStatus == nil || event.ResponseStatus.Code >= 300 {
		return nil
	}
	read := func(into any) {
		if err := json.Unmarshal(event.RequestObject.Raw, into); err != nil {
			t.Fatal(err)
		}
	}
	switch resource := event.ObjectRef.Resource; resource {
	case "roles", "clusterroles":
		var role rbacv1.ClusterRole
		read(&role)
		var rules []rbacv1.PolicyRule
		for _, rule := range role.Rules {
			rules = append(rules, validation.BreakdownRule(rule)...)
		}
		return rules
	case "rolebindings", "clusterrolebindings":
		var binding rbacv1.ClusterRoleBinding
		read(&binding)
		kind := strings.ToLower(binding.RoleRef.Kind) + "s"
		return []rbacv1.PolicyRule{{Verbs: []string{"bind"}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{kind}, ResourceNames: []string{binding.RoleRef.Name}}}
	case "certificatesigningrequests":
		if event.ObjectRef.Subresource != "approval" {
			return nil
		}
		var request certificatesv1.CertificateSigningRequest
		read(&request)
		return []rbacv1.PolicyRule{{Verbs: []string{"approve"}, APIGroups: []string{certificatesv1.GroupName}, Resources: []string{"signers"}, ResourceNames: []string{request.Spec.SignerName}}}
	}
	return nil
}

// check fails the test for permissions that no request of the users in an audit log used, except some, and
// for requests that were always denied. An API server may deny the first ones, before it knows new roles.
func (a *access) check(t *testing.T, who, log string, is func(user string, groups []string) bool, except map[string]string) {
	t.Helper()
	a.read(t, log, is)
	for _, permission := range slices.Sorted(maps.Keys(a.unused)) {
		if except[permission] == "" {
			t.Errorf("%s did not use the permission %q", who, permission)
		}
	}
	for permission, reason := range except {
		if _, unused := a.unused[permission]; !unused {
			t.Errorf("%s used the permission %q, or does not have it: want no exception (%s)", who, permission, reason)
		}
	}
	for _, request := range slices.Sorted(maps.Keys(a.denied)) {
		if !a.allowed[request] {
			t.Errorf("%s was denied %q", who, request)
		}
	}
}

func isAccount(namespace, name string) func(string, []string) bool {
	return func(user string, _ []string) bool { return user == serviceaccount.MakeUsername(namespace, name) }
}

func isMember(group string) func(string, []string) bool {
	return func(_ string, groups []string) bool { return slices.Contains(groups, group) }
}
