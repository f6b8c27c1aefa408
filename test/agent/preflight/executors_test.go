package preflight_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/pkg/agent/accessreview"
	"open-cluster-management.io/hub-apiserver/pkg/agent/preflight"
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
func (f *fixture) refused(executors *preflight.Executors, request work.AdmitRequest) *work.Refusal {
	f.Helper()
	client, err := executors.Admit(f.Context(), request)
	var refusal *work.Refusal
	if !errors.As(err, &refusal) || client != nil {
		f.Fatalf("Admit() = %v, %v, want a refusal", client, err)
	}
	return refusal
}

func (f *fixture) admitted(executors *preflight.Executors, request work.AdmitRequest) dynamic.Interface {
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
	`{apiGroups: [rbac.authorization.k8s.io], resources: [roles, rolebindings, clusterroles, clusterrolebindings], verbs: [get, list, watch]}`,
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
	client := f.admitted(f.executors(preflight.Impersonate, config), request)
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
	if got, want := who.Status.UserInfo.Username, accessreview.UserName(f.executor); got != want {
		t.Errorf("user = %s, want %s", got, want)
	}
	got, want := slices.Sorted(slices.Values(who.Status.UserInfo.Groups)), slices.Sorted(slices.Values(accessreview.Groups(f.executor)))
	if !slices.Equal(got, want) {
		t.Errorf("groups = %v, want %v", got, want)
	}
	if _, err := f.kube.CoreV1().ServiceAccounts(f.namespace).Get(t.Context(), f.executor.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get(ServiceAccount) = %v, want NotFound", err)
	}

	// The agent is allowed to read the Secret, and the executor is not.
	f.make(secret)
	if _, err := at(client, f.object(secret)).Get(t.Context(), "password", metav1.GetOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), accessreview.UserName(f.executor)) {
		t.Errorf("Get(secret) = %v, want Forbidden for the executor", err)
	}
}

func TestExecutorsDoNotShareClients(t *testing.T) {
	t.Parallel()
	one, two := newFixture(t), newFixture(t)
	one.allow(one.namespace, writeConfig)
	two.allow(two.namespace, writeConfig)
	executors := one.executors(preflight.Impersonate, nil)
	first, second := one.request(workv1.UpdateStrategyTypeUpdate, configMap), two.request(workv1.UpdateStrategyTypeUpdate, configMap)
	one.admitted(executors, first)
	client := two.admitted(executors, second)
	executors.Forget(one.executor)
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

// TestAgentWithoutImpersonate checks that the error contains the missing rule if the agent is not
// allowed to impersonate.
func TestAgentWithoutImpersonate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.allow(f.namespace, writeConfig)
	config, allow := f.agent(append(review, writeConfig)...)
	request := f.request(workv1.UpdateStrategyTypeUpdate, configMap)
	client := f.admitted(f.executors(preflight.Impersonate, config), request)
	target := at(client, request.Targets[0].Object)
	_, err := target.Create(t.Context(), request.Targets[0].Object, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Fatalf("Create() = %v, want Forbidden", err)
	}
	const rule = `{apiGroups: [""], resources: [serviceaccounts], resourceNames: [deployer], verbs: [impersonate]}`
	for _, want := range []string{"the agent cannot act as the executor " + f.executor.String(), rule, "--executor-mode=Review", "cannot impersonate"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Create() = %v, want an error with %q", err, want)
		}
	}
	other := f.object(strings.ReplaceAll(configMap, "settings", "other"))
	for what, try := range map[string]func() error{
		"update": func() error { _, err := target.Update(t.Context(), other, metav1.UpdateOptions{}); return err },
		"get":    func() error { _, err := target.Get(t.Context(), "settings", metav1.GetOptions{}); return err },
		"list":   func() error { _, err := target.List(t.Context(), metav1.ListOptions{}); return err },
		"delete": func() error { return target.Delete(t.Context(), "settings", metav1.DeleteOptions{}) },
		"patch": func() error {
			_, err := target.Patch(t.Context(), "settings", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
			return err
		},
		"apply": func() error {
			_, err := target.Apply(t.Context(), "settings", request.Targets[0].Object, metav1.ApplyOptions{FieldManager: "work-agent"})
			return err
		},
	} {
		if err := try(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "--executor-mode=Review") {
			t.Errorf("%s = %v, want Forbidden with the remedy", what, err)
		}
	}

	allow(rule)
	if err := apply(t.Context(), client, request.Targets[0]); err != nil {
		t.Errorf("apply() with the rule of the error = %v, want nil", err)
	}
}

// TestOneDenialPreventsAll checks that one denied manifest prevents the whole ManifestWork. If the
// rules in the messages are granted without changes, the ManifestWork is admitted.
func TestOneDenialPreventsAll(t *testing.T) {
	t.Parallel()
	for _, mode := range preflight.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.allow(f.namespace, `{apiGroups: [""], resources: [configmaps], resourceNames: ["true"], verbs: [get, update, patch]}`, getPods,
				`{apiGroups: [""], resources: [secrets], verbs: [get, create, update, patch, delete]}`)
			manifests := []string{configMap, secret, otherConfig, secretRole, bindRole, bindEverywhere, space}
			request := f.request(workv1.UpdateStrategyTypeUpdate, manifests...)
			executors := f.executors(mode, nil)
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
		})
	}
}

// TestCreateLimitedByName checks that a rule with resourceNames does not allow a POST request, although
// a SubjectAccessReview with the name allows it.
func TestCreateLimitedByName(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.allow(f.namespace, `{apiGroups: [""], resources: [configmaps], resourceNames: [settings], verbs: [get, create, update, patch, delete]}`)
	request := f.request(workv1.UpdateStrategyTypeUpdate, configMap)
	refusal := f.refused(f.executors(preflight.Impersonate, nil), request)
	for _, want := range []string{`that contains the rule {apiGroups: [""], resources: [configmaps], verbs: [create]};`, "resourceNames: [settings], verbs: [create]} has no effect"} {
		if !strings.Contains(refusal.Manifests[0], want) {
			t.Errorf("Manifests[0] = %s, want text that contains %s", refusal.Manifests[0], want)
		}
	}
	if got := f.deniedByServer(request); !slices.Equal(got, []int{0}) {
		t.Errorf("deniedByServer() = %v, want [0]", got)
	}
	f.admitted(f.executors(preflight.Review, nil), request)

	applied := f.request(workv1.UpdateStrategyTypeServerSideApply, configMap)
	f.admitted(f.executors(preflight.Impersonate, nil), applied)
	if got := f.deniedByServer(applied); got != nil {
		t.Errorf("deniedByServer() = %v, want none", got)
	}
}

func TestReadOnlyRequiresGet(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.allow(f.namespace, `{apiGroups: ["", rbac.authorization.k8s.io], resources: [configmaps, roles], verbs: [get]}`)
	f.admitted(f.executors(preflight.Impersonate, nil), f.request(workv1.UpdateStrategyTypeReadOnly, configMap, secretRole))
	f.refused(f.executors(preflight.Impersonate, nil), f.request(workv1.UpdateStrategyTypeReadOnly, secret))
	f.refused(f.executors(preflight.Impersonate, nil), f.request(workv1.UpdateStrategyTypeCreateOnly, configMap))
}

// TestRequestsForNamespaces checks that a Role in a Namespace can allow requests that name the
// Namespace, because authorizers treat them as requests in the Namespace.
func TestRequestsForNamespaces(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.allow(f.namespace, `{apiGroups: [""], resources: [namespaces], verbs: [get, patch, update, create, delete]}`)
	request := f.request(workv1.UpdateStrategyTypeServerSideApply, space)
	f.admitted(f.executors(preflight.Impersonate, nil), request)
	if got := f.deniedByServer(request); got != nil {
		t.Errorf("deniedByServer() = %v, want none", got)
	}
	f.refused(f.executors(preflight.Impersonate, nil), f.request(workv1.UpdateStrategyTypeUpdate, space))
}

func TestReviewActsAsTheAgent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.allow(f.namespace, writeConfig)
	config, _ := f.agent(append(review, writeConfig, `{apiGroups: [""], resources: [secrets], verbs: [get]}`)...)
	request := f.request(workv1.UpdateStrategyTypeUpdate, configMap)
	client := f.admitted(f.executors(preflight.Review, config), request)
	if err := apply(t.Context(), client, request.Targets[0]); err != nil {
		t.Error(err)
	}
	f.make(secret)
	if _, err := at(client, f.object(secret)).Get(t.Context(), "password", metav1.GetOptions{}); err != nil {
		t.Errorf("Get(secret) = %v, want nil, as the agent", err)
	}
}

// TestReviewOfRolesThatCannotBeWritten checks that the executor must also hold the rules that the role
// of a binding has on the cluster, because the binding is written even if the write of the role fails.
func TestReviewOfRolesThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.make(secretsCluster)
	f.allow("", writeRBAC, getPods)
	for _, strategy := range []workv1.UpdateStrategyType{workv1.UpdateStrategyTypeUpdate, workv1.UpdateStrategyTypeServerSideApply, workv1.UpdateStrategyTypeCreateOnly} {
		refusal := f.refused(f.executors(preflight.Review, nil), f.request(strategy, podClusterRole, bindEverywhere))
		if got := slices.Collect(maps.Keys(refusal.Manifests)); !slices.Equal(got, []int{1}) || !strings.Contains(refusal.Manifests[1], "secrets") {
			t.Errorf("%s: denied manifests = %v, want only 1 with a mention of secrets", strategy, refusal.Manifests)
		}
	}
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
		refusal := f.refused(f.executors(preflight.Impersonate, nil), f.request(workv1.UpdateStrategyTypeUpdate, manifest))
		if refusal.Manifests[0] == "" {
			t.Errorf("Admit(%s) = %v, want a message for manifest 0", manifest, refusal)
		}
	}
}

func TestWithoutExecutor(t *testing.T) {
	t.Parallel()
	own := dynamic.New(nil)
	executors, err := preflight.New(preflight.Config{Managed: &rest.Config{}, Own: own, Reviewer: unasked{t}})
	if err != nil {
		t.Fatal(err)
	}
	client, err := executors.Admit(t.Context(), work.AdmitRequest{Work: &workv1.ManifestWork{}, Acting: true, Targets: []work.Target{{Resource: schema.GroupVersionResource{Resource: "pods"}}}})
	if err != nil || client != dynamic.Interface(own) {
		t.Errorf("Admit() = %v, %v, want the client of the agent, nil", client, err)
	}
}

func TestInvalidExecutors(t *testing.T) {
	t.Parallel()
	executors, err := preflight.New(preflight.Config{Managed: &rest.Config{}, Own: dynamic.New(nil), Reviewer: unasked{t}})
	if err != nil {
		t.Fatal(err)
	}
	for _, account := range []*workv1.ManifestWorkSubjectServiceAccount{nil, {}, {Namespace: "a"}, {Name: "a"}, {Namespace: "a", Name: "b:c"}, {Namespace: "a.b", Name: "c"}, {Namespace: "a:b", Name: "c"}} {
		request := work.AdmitRequest{Work: &workv1.ManifestWork{}, Acting: true}
		request.Work.Spec.Executor = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{ServiceAccount: account}}
		client, err := executors.Admit(t.Context(), request)
		var refusal *work.Refusal
		if !errors.As(err, &refusal) || client != nil {
			t.Errorf("Admit(executor %v) = %v, %v, want nil and a refusal", account, client, err)
		}
	}
}

// unasked is a Reviewer that fails the test if it is called.
type unasked struct{ *testing.T }

func (u unasked) Run(context.Context, func(types.NamespacedName)) {}
func (u unasked) Forget(types.NamespacedName)                     {}

func (u unasked) Review(context.Context, types.NamespacedName, []accessreview.Request, time.Duration) ([]accessreview.Decision, error) {
	u.Error("Review() was called, want no calls")
	return nil, nil
}

func (u unasked) Rules(context.Context, types.NamespacedName, string) ([]rbacv1.PolicyRule, error) {
	u.Error("Rules() was called, want no calls")
	return nil, nil
}

func (u unasked) RoleRules(context.Context, types.NamespacedName, rbacv1.RoleRef, string) ([]rbacv1.PolicyRule, bool, error) {
	u.Error("RoleRules() was called, want no calls")
	return nil, false, nil
}

// TestAgentWithoutReviews checks that the refusal contains the missing rules if the agent is not
// allowed to check permissions.
func TestAgentWithoutReviews(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.allow(f.namespace, writeRBAC, getPods)
	config, allow := f.agent(impersonate)
	executors := f.executors(preflight.Impersonate, config)
	request := f.request(workv1.UpdateStrategyTypeUpdate, podRole)
	refusal := f.refused(executors, request)
	rules := ruleText.FindAllString(refusal.Message, -1)
	if len(rules) != 2 || len(refusal.Manifests) != 0 {
		t.Fatalf("Admit() = %v, want a refusal with 2 rules and no denied manifests", refusal)
	}
	allow(rules[0])
	if again := f.refused(executors, request); !strings.Contains(again.Message, "bindings") {
		t.Errorf("Admit() = %v, want a refusal with a mention of bindings", again)
	}
	allow(rules[1])
	await.Eventually(f, "the ManifestWork is admitted with the granted rules", func() error {
		_, err := executors.Admit(t.Context(), request)
		return err
	})
}

// recorder records the calls of a Reviewer.
type recorder struct {
	preflight.Reviewer
	ages     []time.Duration
	requests [][]accessreview.Request
	err      error
	forgot   []types.NamespacedName
}

func (r *recorder) Forget(account types.NamespacedName) { r.forgot = append(r.forgot, account) }

func (r *recorder) Review(ctx context.Context, account types.NamespacedName, requests []accessreview.Request, maxAge time.Duration) ([]accessreview.Decision, error) {
	r.ages, r.requests = append(r.ages, maxAge), append(r.requests, requests)
	if r.err != nil {
		return nil, r.err
	}
	return r.Reviewer.Review(ctx, account, requests, maxAge)
}

// TestAllRequestsAreReviewedAtOnce checks that one call of Review contains the requests of all
// manifests, each once. A pass that does not act accepts decisions of any age.
func TestAllRequestsAreReviewedAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.allow(f.namespace, writeConfig)
	r := &recorder{}
	executors := f.reviewed(preflight.Impersonate, nil, func(real preflight.Reviewer) preflight.Reviewer { r.Reviewer = real; return r })
	request := f.request(workv1.UpdateStrategyTypeUpdate, configMap, otherConfig)
	f.admitted(executors, request)
	request.Acting = false
	f.admitted(executors, request)
	if want := []time.Duration{10 * time.Minute, 0}; !slices.Equal(r.ages, want) {
		t.Errorf("maxAge = %v, want %v", r.ages, want)
	}
	// Four requests name each ConfigMap, and one create request is for both.
	if len(r.requests[0]) != 9 {
		t.Errorf("requests = %v (%d), want 9", r.requests[0], len(r.requests[0]))
	}
	f.admitted(executors, f.request(workv1.UpdateStrategyTypeUpdate))
	if len(r.requests) != 2 {
		t.Errorf("calls of Review() = %d, want 2 and none for a ManifestWork without manifests", len(r.requests))
	}

	r.err = errors.New("out of order")
	_, err := executors.Admit(t.Context(), request)
	var refusal *work.Refusal
	if !errors.Is(err, r.err) || errors.As(err, &refusal) {
		t.Errorf("Admit() = %v, want the error of the review and no refusal", err)
	}

	executors.Forget(f.executor)
	if want := []types.NamespacedName{f.executor}; !slices.Equal(r.forgot, want) {
		t.Errorf("Forget() was called for %v, want %v", r.forgot, want)
	}
}

func TestNewValidates(t *testing.T) {
	t.Parallel()
	complete := preflight.Config{Managed: &rest.Config{}, Own: dynamic.New(nil), Reviewer: unasked{t}}
	for what, change := range map[string]func(*preflight.Config){
		"no cluster": func(c *preflight.Config) { c.Managed = nil }, "no client": func(c *preflight.Config) { c.Own = nil },
		"no reviewer": func(c *preflight.Config) { c.Reviewer = nil }, "an unknown mode": func(c *preflight.Config) { c.Mode = "impersonate" },
	} {
		config := complete
		change(&config)
		if _, err := preflight.New(config); err == nil {
			t.Errorf("New(%s) = nil, want an error", what)
		}
	}
	if _, err := preflight.New(complete); err != nil {
		t.Error(err)
	}
}

// TestGrantAndRevocationAreNotified checks that changes of RBAC on the cluster cause a notification,
// and that later calls of Admit take them into account.
func TestGrantAndRevocationAreNotified(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.make(podRole)
	executors := f.executors(preflight.Impersonate, nil)
	request := f.request(workv1.UpdateStrategyTypeUpdate, configMap, bindRole)
	f.refused(executors, request)

	f.allow(f.namespace, writeConfig, getPods, `{apiGroups: [rbac.authorization.k8s.io], resources: [rolebindings], verbs: ["*"]}`)
	notified := func(what string, before int) {
		t.Helper()
		await.Eventually(f, "the change is notified: "+what, func() error {
			if f.changed.of(f.executor) <= before {
				return errors.New("no notification")
			}
			return nil
		})
	}
	notified("the executor has more permissions", 0)
	await.Eventually(f, "the ManifestWork is admitted", func() error { _, err := executors.Admit(t.Context(), request); return err })

	before := f.changed.of(f.executor)
	if err := f.kube.RbacV1().RoleBindings(f.namespace).Delete(t.Context(), f.namespace+"-held-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	notified("the executor has fewer permissions", before)
	var refusal *work.Refusal
	await.Eventually(f, "the ManifestWork is refused", func() error {
		if _, err := executors.Admit(t.Context(), request); !errors.As(err, &refusal) {
			return fmt.Errorf("Admit() = %v, want a refusal", err)
		}
		return nil
	})
	if got := slices.Collect(maps.Keys(refusal.Manifests)); !slices.Equal(got, []int{0}) {
		t.Errorf("denied manifests = %v, want [0]", got)
	}

	// The bound role now grants more than the executor holds.
	before = f.changed.of(f.executor)
	role := f.object(secretRole)
	if _, err := at(f.admin, role).Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	notified("the bound role grants more", before)
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
	executors := f.executors(preflight.Impersonate, nil)
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
