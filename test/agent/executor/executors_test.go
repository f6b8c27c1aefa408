package executor_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/pkg/agent/executor"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/await"
)

const (
	configMap   = `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS}, data: {a: b}}`
	otherConfig = `{apiVersion: v1, kind: ConfigMap, metadata: {name: "true", namespace: NS}}`
	secret      = `{apiVersion: v1, kind: Secret, metadata: {name: password, namespace: NS}}`
	space       = `{apiVersion: v1, kind: Namespace, metadata: {name: NS, labels: {a: b}}}`

	writeConfig = `{apiGroups: [""], resources: [configmaps], verbs: [get, create, update, patch, delete]}`
	impersonate = `{apiGroups: [""], resources: [serviceaccounts], verbs: [impersonate]}`
)

// refused returns the refusal of a ManifestWork, and fails the test if it is not refused.
func (f *fixture) refused(executors *executor.Executors, request work.AdmitRequest) *work.Refusal {
	f.Helper()
	client, err := executors.Admit(f.Context(), request)
	var refusal *work.Refusal
	if !errors.As(err, &refusal) || client != nil {
		f.Fatalf("Admit() = %v, %v, want a refusal", client, err)
	}
	return refusal
}

func (f *fixture) admitted(executors *executor.Executors, request work.AdmitRequest) dynamic.Interface {
	f.Helper()
	client, err := executors.Admit(f.Context(), request)
	if err != nil {
		f.Fatal(err)
	}
	return client
}

// agent returns the configuration of an agent with rules in YAML, and a function that grants another
// rule.
func (f *fixture) agent(rules ...string) (config *rest.Config, allow func(text string)) {
	f.Helper()
	user := "agent of " + f.namespace
	config, err := managed.UserConfig(user)
	if err != nil {
		f.Fatal(err)
	}
	subject := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}
	allow = func(text string) {
		f.Helper()
		f.grant(subject, user, []string{"system:authenticated"}, held{"", ruleOf(f, text)})
	}
	for _, rule := range rules {
		allow(rule)
	}
	return config, allow
}

var review = []string{
	`{apiGroups: [authorization.k8s.io], resources: [subjectaccessreviews], verbs: [create]}`,
	`{apiGroups: [rbac.authorization.k8s.io], resources: [roles, clusterroles], verbs: [get]}`,
}

var ruleText = regexp.MustCompile(`\{[^{}]*\}`)

// TestActsAsExecutor checks that a ManifestWork is applied as the user and with the groups of its
// executor, even if the ServiceAccount does not exist.
func TestActsAsExecutor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.allow(f.namespace, writeConfig)
	config, _ := f.agent(append(review, impersonate, all)...)
	request := f.request(workv1.UpdateStrategyTypeUpdate, configMap)
	client := f.admitted(f.executors(config), request)
	if err := apply(t.Context(), client, request.Targets[0]); err != nil {
		t.Fatal(err)
	}

	self := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}}
	self, err := client.Resource(authenticationv1.SchemeGroupVersion.WithResource("selfsubjectreviews")).Create(t.Context(), self, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var who authenticationv1.SelfSubjectReview
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(self.Object, &who); err != nil {
		t.Fatal(err)
	}
	if got, want := who.Status.UserInfo.Username, f.userName(); got != want {
		t.Errorf("user = %s, want %s", got, want)
	}
	got, want := slices.Sorted(slices.Values(who.Status.UserInfo.Groups)), slices.Sorted(slices.Values(f.groups()))
	if !slices.Equal(got, want) {
		t.Errorf("groups = %v, want %v", got, want)
	}
	if _, err := f.kube.CoreV1().ServiceAccounts(f.namespace).Get(t.Context(), f.executor.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get(ServiceAccount) = %v, want NotFound", err)
	}

	// The agent is allowed to read the Secret, and the executor is not.
	f.make(secret)
	if _, err := at(client, f.object(secret)).Get(t.Context(), "password", metav1.GetOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), f.userName()) {
		t.Errorf("Get(secret) = %v, want Forbidden for the executor", err)
	}
}

func TestExecutorsDoNotShareClients(t *testing.T) {
	t.Parallel()
	one, two := newFixture(t), newFixture(t)
	one.allow(one.namespace, writeConfig)
	two.allow(two.namespace, writeConfig)
	executors := one.executors(nil)
	first, second := one.request(workv1.UpdateStrategyTypeUpdate, configMap), two.request(workv1.UpdateStrategyTypeUpdate, configMap)
	one.admitted(executors, first)
	client := two.admitted(executors, second)
	if err := apply(t.Context(), client, second.Targets[0]); err != nil {
		t.Error(err)
	}
	if err := apply(t.Context(), client, first.Targets[0]); !apierrors.IsForbidden(err) {
		t.Errorf("apply(object of another executor) = %v, want Forbidden", err)
	}
	if err := apply(t.Context(), one.admitted(executors, first), first.Targets[0]); err != nil {
		t.Error(err)
	}
}

// TestAgentWithoutImpersonate checks that an agent that is not allowed to impersonate refuses the
// ManifestWork, and that the refusal contains the missing rule, also if the rules of the executor are
// needed to check a Role.
func TestAgentWithoutImpersonate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.allow(f.namespace, writeConfig, writeRBAC, getPods)
	config, allow := f.agent(append(review, writeConfig)...)
	executors, request := f.executors(config), f.request(workv1.UpdateStrategyTypeUpdate, configMap, podRole)
	refusal := f.refused(executors, request)
	const rule = `{apiGroups: [""], resources: [serviceaccounts], resourceNames: [deployer], verbs: [impersonate]}`
	for _, want := range []string{"the agent cannot impersonate the executor " + f.executor.String(), rule} {
		if !strings.Contains(refusal.Message, want) {
			t.Errorf("Message = %s, want text that contains %s", refusal.Message, want)
		}
	}
	if len(refusal.Manifests) != 0 {
		t.Errorf("Manifests = %v, want none, because the executor has all permissions", refusal.Manifests)
	}
	allow(rule)
	if err := apply(t.Context(), f.admitted(executors, request), request.Targets[0]); err != nil {
		t.Errorf("apply() with the rule of the refusal = %v, want nil", err)
	}
}

// TestOneDenialPreventsAll checks that one denied manifest prevents the whole ManifestWork. If the
// rules in the messages are granted without changes, the ManifestWork is admitted.
func TestOneDenialPreventsAll(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.allow(f.namespace, `{apiGroups: [""], resources: [configmaps], resourceNames: ["true"], verbs: [get, update, patch]}`, getPods,
		`{apiGroups: [""], resources: [secrets], verbs: [get, create, update, patch, delete]}`)
	manifests := []string{configMap, secret, otherConfig, secretRole, bindRole, bindEverywhere, space}
	request := f.request(workv1.UpdateStrategyTypeUpdate, manifests...)
	executors := f.executors(nil)
	refusal := f.refused(executors, request)
	if got, want := refusal.Message, "not applied: the executor "+f.executor.String()+" lacks permissions for 6 of 7 manifests; a ManifestWork is applied completely or not at all"; got != want {
		t.Errorf("Message = %s, want %s", got, want)
	}
	if got := slices.Sorted(maps.Keys(refusal.Manifests)); !slices.Equal(got, []int{0, 2, 3, 4, 5, 6}) {
		t.Errorf("denied manifests = %v, want all except 1", got)
	}
	if got, want := refusal.Manifests[0], "not allowed to apply the resource  configmaps, "+f.namespace+" settings: the executor "+f.executor.String()+" cannot "; !strings.HasPrefix(got, want) {
		t.Errorf("Manifests[0] = %s, want prefix %s", got, want)
	}

	f.make(secretRole, secretsCluster)
	refusal = f.refused(executors, request)
	for ordinal, message := range refusal.Manifests {
		namespace := request.Targets[ordinal].Namespace
		for _, rule := range ruleText.FindAllString(message, -1) {
			f.allow(namespace, rule)
		}
	}
	await.Eventually(f, "the ManifestWork is admitted with the granted rules", func() error {
		_, err := executors.Admit(t.Context(), request)
		return err
	})
}

// TestCreateLimitedByName checks that a rule with resourceNames does not allow a POST request, although
// a SubjectAccessReview with the name allows it.
func TestCreateLimitedByName(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.allow(f.namespace, `{apiGroups: [""], resources: [configmaps], resourceNames: [settings], verbs: [get, create, update, patch, delete]}`)
	request := f.request(workv1.UpdateStrategyTypeUpdate, configMap)
	refusal := f.refused(f.executors(nil), request)
	if want := `that contains the rule {apiGroups: [""], resources: [configmaps], verbs: [create]}`; !strings.Contains(refusal.Manifests[0], want) {
		t.Errorf("Manifests[0] = %s, want text that contains %s", refusal.Manifests[0], want)
	}
	if got := f.deniedByServer(request); !slices.Equal(got, []int{0}) {
		t.Errorf("deniedByServer() = %v, want [0]", got)
	}

	applied := f.request(workv1.UpdateStrategyTypeServerSideApply, configMap)
	f.admitted(f.executors(nil), applied)
	if got := f.deniedByServer(applied); got != nil {
		t.Errorf("deniedByServer() = %v, want none", got)
	}
}

func TestReadOnlyRequiresGet(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.allow(f.namespace, `{apiGroups: ["", rbac.authorization.k8s.io], resources: [configmaps, roles], verbs: [get]}`)
	f.admitted(f.executors(nil), f.request(workv1.UpdateStrategyTypeReadOnly, configMap, secretRole))
	f.refused(f.executors(nil), f.request(workv1.UpdateStrategyTypeReadOnly, secret))
	f.refused(f.executors(nil), f.request(workv1.UpdateStrategyTypeCreateOnly, configMap))
}

// TestRequestsForNamespaces checks that a Role in a Namespace can allow requests that name the
// Namespace, because authorizers treat them as requests in the Namespace.
func TestRequestsForNamespaces(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.allow(f.namespace, `{apiGroups: [""], resources: [namespaces], verbs: [get, patch, update, create, delete]}`)
	request := f.request(workv1.UpdateStrategyTypeServerSideApply, space)
	f.admitted(f.executors(nil), request)
	if got := f.deniedByServer(request); got != nil {
		t.Errorf("deniedByServer() = %v, want none", got)
	}
	f.refused(f.executors(nil), f.request(workv1.UpdateStrategyTypeUpdate, space))
}

func TestUnreadableManifestsAreDenied(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.allow("", all, allURLs)
	for _, manifest := range []string{
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r, namespace: NS}, rules: {a: b}}`,
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: r}, rules: [{verbs: [{}]}]}`,
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: r, namespace: NS}, roleRef: {kind: Other, name: r}}`,
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: r, namespace: NS}}`,
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: r}, roleRef: []}`,
	} {
		refusal := f.refused(f.executors(nil), f.request(workv1.UpdateStrategyTypeUpdate, manifest))
		if refusal.Manifests[0] == "" {
			t.Errorf("Admit(%s) = %v, want a message for manifest 0", manifest, refusal)
		}
	}
}

func TestWithoutExecutor(t *testing.T) {
	t.Parallel()
	own := dynamic.New(nil)
	executors := executor.New(executor.Config{Managed: &rest.Config{}, Own: own})
	client, err := executors.Admit(t.Context(), work.AdmitRequest{Work: &workv1.ManifestWork{}, Targets: []work.Target{{Resource: schema.GroupVersionResource{Resource: "pods"}}}})
	if err != nil || client != dynamic.Interface(own) {
		t.Errorf("Admit() = %v, %v, want the client of the agent, nil", client, err)
	}
}

// TestInvalidExecutors checks that invalid executors are refused without a request.
func TestInvalidExecutors(t *testing.T) {
	t.Parallel()
	executors := executor.New(executor.Config{Managed: &rest.Config{}, Own: dynamic.New(nil)})
	for _, account := range []*workv1.ManifestWorkSubjectServiceAccount{nil, {}, {Namespace: "a"}, {Name: "a"}, {Namespace: "a", Name: "b:c"}, {Namespace: "a.b", Name: "c"}, {Namespace: "a:b", Name: "c"}} {
		request := work.AdmitRequest{Work: &workv1.ManifestWork{}}
		request.Work.Spec.Executor = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{ServiceAccount: account}}
		client, err := executors.Admit(t.Context(), request)
		var refusal *work.Refusal
		if !errors.As(err, &refusal) || client != nil {
			t.Errorf("Admit(executor %v) = %v, %v, want nil and a refusal", account, client, err)
		}
	}
}

// TestAgentWithoutReviews checks that the refusal contains the missing rules if the agent is not
// allowed to check permissions.
func TestAgentWithoutReviews(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.allow(f.namespace, writeRBAC, getPods)
	config, allow := f.agent(impersonate)
	executors := f.executors(config)
	request := f.request(workv1.UpdateStrategyTypeUpdate, podRole)
	refusal := f.refused(executors, request)
	rules := ruleText.FindAllString(refusal.Message, -1)
	if len(rules) != 2 || len(refusal.Manifests) != 0 {
		t.Fatalf("Admit() = %v, want a refusal with 2 rules and no denied manifests", refusal)
	}
	allow(rules[0])
	allow(rules[1])
	await.Eventually(f, "the ManifestWork is admitted with the granted rules", func() error {
		_, err := executors.Admit(t.Context(), request)
		return err
	})
}

// roundTrip is an http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (r roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// TestRolesAreReadOnce checks that a check reads each role and the rules of the executor in each namespace
// once, however many bindings there are.
func TestRolesAreReadOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.make(podClusterRole)
	f.allow(f.namespace, writeRBAC, getPods)
	config := managed.AdminConfig()
	var roles, reviews atomic.Int32
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(request *http.Request) (*http.Response, error) {
			switch {
			case strings.Contains(request.URL.Path, "/clusterroles/"):
				roles.Add(1)
			case strings.HasSuffix(request.URL.Path, "/selfsubjectrulesreviews"):
				reviews.Add(1)
			}
			return next.RoundTrip(request)
		})
	})
	var bindings []string
	for i := range 5 {
		bindings = append(bindings, strings.Replace(bindClusterRole, "name: b,", fmt.Sprintf("name: b-%d,", i), 1))
	}
	f.admitted(f.executors(config), f.request(workv1.UpdateStrategyTypeUpdate, bindings...))
	if roles.Load() != 1 || reviews.Load() != 1 {
		t.Errorf("requests for the role = %d and for the rules of the executor = %d, want 1 and 1", roles.Load(), reviews.Load())
	}
}

// TestGrantAndRevocation checks that calls of Admit take changes of RBAC on the cluster into account.
func TestGrantAndRevocation(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.make(podRole)
	executors := f.executors(nil)
	request := f.request(workv1.UpdateStrategyTypeUpdate, configMap, bindRole)
	f.refused(executors, request)

	f.allow(f.namespace, writeConfig, getPods, `{apiGroups: [rbac.authorization.k8s.io], resources: [rolebindings], verbs: ["*"]}`)
	await.Eventually(f, "the ManifestWork is admitted", func() error { _, err := executors.Admit(t.Context(), request); return err })

	if err := f.kube.RbacV1().RoleBindings(f.namespace).Delete(t.Context(), f.namespace+"-held-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// Without a refused write, an earlier answer is valid for ten seconds.
	kept := request
	kept.Fresh = false
	var refusal *work.Refusal
	await.Eventually(f, "the ManifestWork is refused", func() error {
		if _, err := executors.Admit(t.Context(), kept); !errors.As(err, &refusal) {
			return fmt.Errorf("Admit() = %v, want a refusal", err)
		}
		return nil
	})
	if got := slices.Collect(maps.Keys(refusal.Manifests)); !slices.Equal(got, []int{0}) {
		t.Errorf("denied manifests = %v, want [0]", got)
	}

	// The bound role now grants more than the executor holds.
	role := f.object(secretRole)
	if _, err := at(f.admin, role).Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	await.Eventually(f, "the binding is refused", func() error {
		if _, err := executors.Admit(t.Context(), request); !errors.As(err, &refusal) || refusal.Manifests[1] == "" {
			return fmt.Errorf("Admit() = %v, want a refusal of manifest 1", err)
		}
		return nil
	})
}

// TestRefusalDisclosesNoRoles checks the message for an executor without permission to write a binding.
// It must not disclose which roles exist on the cluster and which rules they contain, because users of
// the hub with permission to use the executor can read it.
func TestRefusalDisclosesNoRoles(t *testing.T) {
	f := newFixture(t)
	f.make(`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: there, namespace: NS}, rules: [{apiGroups: [""], resources: [secrets], resourceNames: [undisclosed], verbs: [get]}]}`)
	executors := f.executors(nil)
	message := func(manifest string) string {
		t.Helper()
		_, err := executors.Admit(t.Context(), f.request(workv1.UpdateStrategyTypeUpdate, manifest))
		var refusal *work.Refusal
		if !errors.As(err, &refusal) || refusal.Manifests[0] == "" {
			t.Fatalf("Admit() = %v, want a refusal of manifest 0", err)
		}
		return refusal.Manifests[0]
	}
	binding := func(role string) string {
		return `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: b, namespace: NS}, roleRef: {kind: Role, name: ` + role + `}, subjects: [{kind: User, name: u}]}`
	}
	there, absent := message(binding("there")), message(binding("absent"))
	if strings.Contains(there, "undisclosed") || strings.ReplaceAll(there, `there`, `absent`) != absent {
		t.Errorf("messages for an existing and a missing role = %q, %q, want no difference except the name", there, absent)
	}
	if want := `resources: [roles], resourceNames: [there], verbs: [bind]}`; !strings.Contains(there, want) {
		t.Errorf("message = %s, want a mention of %s", there, want)
	}
	if kept := message(`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: there, namespace: NS}}`); strings.Contains(kept, "undisclosed") {
		t.Errorf("message = %s, want no rules of the role", kept)
	}
	// The API server also discloses the rules to users with permission to write the binding.
	f.allow(f.namespace, `{apiGroups: [rbac.authorization.k8s.io], resources: [rolebindings], verbs: ["*"]}`)
	await.Eventually(f, "the message contains the missing rule", func() error {
		if got := message(binding("there")); !strings.Contains(got, "undisclosed") {
			return errors.New("message = " + got)
		}
		return nil
	})
}
