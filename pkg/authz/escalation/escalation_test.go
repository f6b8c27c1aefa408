package escalation

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

const (
	cluster = "cluster1"
	cpName  = "grants"
)

var alice = &user.DefaultInfo{Name: "alice", Groups: []string{"team", user.AllAuthenticated}}

// hub is an authorizer that allows some verbs on the tested ClusterPermission, and
// records its calls.
type hub struct {
	allowed []string
	asked   []authorizer.Attributes
}

func (h *hub) answer(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	h.asked = append(h.asked, a)
	if slices.Contains(h.allowed, a.GetVerb()) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func (h *hub) authorizer() authorizer.Authorizer {
	return authorizer.AuthorizerFunc(h.answer)
}

func (h *hub) verbs() []string {
	var verbs []string
	for _, a := range h.asked {
		verbs = append(verbs, a.GetVerb())
	}
	return verbs
}

func yamlSpec(t testing.TB, text string) *rbacv1alpha1.ClusterPermissionSpec {
	t.Helper()
	spec := &rbacv1alpha1.ClusterPermissionSpec{}
	if err := yaml.UnmarshalStrict([]byte(text), spec); err != nil {
		t.Fatalf("decoding the spec: %v\n%s", err, text)
	}
	return spec
}

// manifests returns the manifests of YAML documents. apiVersion defaults to
// rbac.authorization.k8s.io/v1.
func manifests(t testing.TB, text string) []workv1.Manifest {
	t.Helper()
	var all []workv1.Manifest
	for _, document := range strings.Split(text, "---") {
		if strings.TrimSpace(document) == "" {
			continue
		}
		if !strings.Contains(document, "apiVersion:") {
			document += "\napiVersion: rbac.authorization.k8s.io/v1\n"
		}
		raw, err := yaml.YAMLToJSON([]byte(document))
		if err != nil {
			t.Fatalf("decoding a manifest: %v\n%s", err, document)
		}
		var m workv1.Manifest
		m.Raw = raw
		all = append(all, m)
	}
	return all
}

func permission(s *rbacv1alpha1.ClusterPermissionSpec) *rbacv1alpha1.ClusterPermission {
	return &rbacv1alpha1.ClusterPermission{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: cpName}, Spec: *s}
}

func check(t testing.TB, caller user.Info, h *hub, delivered []workv1.Manifest, s, before *rbacv1alpha1.ClusterPermissionSpec) *Refusal {
	t.Helper()
	checker := &Checker{
		Authorizer: h.authorizer(),
		Delivered: func(_ context.Context, namespace string) ([]workv1.Manifest, error) {
			if namespace != cluster {
				t.Errorf("namespace of Delivered() = %q, want %q", namespace, cluster)
			}
			return delivered, nil
		},
	}
	refusal, err := checker.Check(request.WithUser(t.Context(), caller), permission(s), before)
	if err != nil {
		t.Fatal(err)
	}
	return refusal
}

// missing returns verb and path of each missing grant.
func missing(refusal *Refusal) []string {
	var all []string
	if refusal != nil {
		for _, m := range refusal.Missing {
			all = append(all, m.Verb+" "+m.Path)
		}
	}
	return all
}

const grantsBoth = `
clusterRole: {rules: [{apiGroups: [apps], resources: [deployments], verbs: [get]}]}
clusterRoleBinding: {subject: {kind: User, name: bob}}
`

func TestVerbs(t *testing.T) {
	const rulesOnly = `clusterRole: {rules: [{apiGroups: [apps], resources: [deployments], verbs: [get]}]}`
	const refsOnly = `roleRefs: [{kind: ClusterRole, name: x}]`
	const bindingOnly = `clusterRoleBinding: {roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, subject: {kind: User, name: bob}}`
	for name, test := range map[string]struct {
		spec, before string
		allowed      []string
		asked, want  []string
		reads        bool
	}{
		"both needed":                  {spec: grantsBoth, asked: []string{"escalate", "bind"}, want: []string{"escalate spec.clusterRole", "bind spec.clusterRoleBinding"}, reads: true},
		"both allowed":                 {spec: grantsBoth, allowed: []string{"escalate", "bind"}, asked: []string{"escalate", "bind"}},
		"bind allows no rules":         {spec: grantsBoth, allowed: []string{"bind"}, asked: []string{"escalate", "bind"}, want: []string{"escalate spec.clusterRole"}, reads: true},
		"escalate binds nothing":       {spec: grantsBoth, allowed: []string{"escalate"}, asked: []string{"escalate", "bind"}, want: []string{"bind spec.clusterRoleBinding"}, reads: true},
		"rules require escalate only":  {spec: rulesOnly, allowed: []string{"escalate"}, asked: []string{"escalate"}},
		"references require escalate":  {spec: refsOnly, allowed: []string{"escalate"}, asked: []string{"escalate"}},
		"bindings require bind only":   {spec: bindingOnly, allowed: []string{"bind"}, asked: []string{"bind"}},
		"nothing new requires nothing": {spec: grantsBoth, before: grantsBoth},
		"nothing requires nothing":     {spec: "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &hub{allowed: test.allowed}
			reads := 0
			checker := &Checker{Authorizer: h.authorizer(), Delivered: func(context.Context, string) ([]workv1.Manifest, error) {
				reads++
				return nil, nil
			}}
			refusal, err := checker.Check(request.WithUser(t.Context(), alice), permission(yamlSpec(t, test.spec)), yamlSpec(t, test.before))
			if err != nil {
				t.Fatal(err)
			}
			if got := missing(refusal); !slices.Equal(got, test.want) {
				t.Errorf("missing grants of Check() = %q, want %q", got, test.want)
			}
			if got := h.verbs(); !slices.Equal(got, test.asked) {
				t.Errorf("access reviews of Check() = %q, want %q", got, test.asked)
			}
			if want := map[bool]int{true: 1}[test.reads]; reads != want {
				t.Errorf("calls of Delivered() = %d, want %d", reads, want)
			}
			for _, a := range h.asked {
				if a.GetUser() != alice || a.GetAPIGroup() != "rbac.open-cluster-management.io" || a.GetResource() != "clusterpermissions" ||
					a.GetSubresource() != "" || a.GetNamespace() != cluster || a.GetName() != cpName || !a.IsResourceRequest() {
					t.Errorf("access review of Check() = %+v, want the ClusterPermission and alice", a)
				}
			}
		})
	}
}

func TestFailures(t *testing.T) {
	ctx := request.WithUser(t.Context(), alice)
	cp := permission(yamlSpec(t, grantsBoth))
	nothing := func(context.Context, string) ([]workv1.Manifest, error) { return nil, nil }
	broken := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionNoOpinion, "", errors.New("no answer")
	})
	for name, test := range map[string]struct {
		ctx     context.Context
		checker Checker
	}{
		"the authorizer fails":         {ctx, Checker{broken, nothing}},
		"the request has no user":      {t.Context(), Checker{(&hub{}).authorizer(), nothing}},
		"the manifests cannot be read": {ctx, Checker{(&hub{}).authorizer(), func(context.Context, string) ([]workv1.Manifest, error) { return nil, errors.New("no cache") }}},
	} {
		t.Run(name, func(t *testing.T) {
			refusal, err := test.checker.Check(test.ctx, cp, nil)
			if refusal != nil || !apierrors.IsInternalError(err) {
				t.Errorf("Check() = %v, %v, want an InternalError", refusal, err)
			}
		})
	}
}
