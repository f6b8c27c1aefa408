package executor_test

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

	"open-cluster-management.io/hub-apiserver/pkg/agent/access"
	"open-cluster-management.io/hub-apiserver/pkg/agent/executor"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

const (
	configMap   = `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS}, data: {a: b}}`
	otherConfig = `{apiVersion: v1, kind: ConfigMap, metadata: {name: "true", namespace: NS}}`
	secret      = `{apiVersion: v1, kind: Secret, metadata: {name: password, namespace: NS}}`
	space       = `{apiVersion: v1, kind: Namespace, metadata: {name: NS, labels: {a: b}}}`

	writeConfig = `{apiGroups: [""], resources: [configmaps], verbs: [get, create, update, patch, delete]}`
	impersonate = `{apiGroups: [""], resources: [serviceaccounts], verbs: [impersonate]}`
)

// refused returns the refusal of a work.
func (f *fixture) refused(executors *executor.Executors, request work.AdmitRequest) *work.Refusal {
	f.Helper()
	client, err := executors.Admit(f.Context(), request)
	var refusal *work.Refusal
	if !errors.As(err, &refusal) || client != nil {
		f.Fatalf("got client %v and error %v, not a refusal", client, err)
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

// agent is an agent with some rules, in YAML.
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

// A work acts as its executor, which need not exist, and has its groups.
func TestWorkActsAsItsExecutor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.allow(f.namespace, writeConfig)
	config, _ := f.agent(append(review, impersonate, all)...)
	request := f.request(workv1.UpdateStrategyTypeUpdate, configMap)
	client := f.admitted(f.executors(executor.Impersonate, config), request)
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
	if got, want := who.Status.UserInfo.Username, access.UserName(f.executor); got != want {
		t.Errorf("it acts as %s, not %s", got, want)
	}
	got, want := slices.Sorted(slices.Values(who.Status.UserInfo.Groups)), slices.Sorted(slices.Values(access.Groups(f.executor)))
	if !slices.Equal(got, want) {
		t.Errorf("its groups are %v, not %v", got, want)
	}
	if _, err := f.kube.CoreV1().ServiceAccounts(f.namespace).Get(t.Context(), f.executor.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the ServiceAccount exists: %v", err)
	}

	// The agent may read it; the executor may not.
	f.make(secret)
	if _, err := at(client, f.object(secret)).Get(t.Context(), "password", metav1.GetOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), access.UserName(f.executor)) {
		t.Errorf("reading what the executor may not read: %v", err)
	}
}

func TestExecutorsDoNotShareClients(t *testing.T) {
	t.Parallel()
	one, two := newFixture(t), newFixture(t)
	one.allow(one.namespace, writeConfig)
	two.allow(two.namespace, writeConfig)
	executors := one.executors(executor.Impersonate, nil)
	first, second := one.request(workv1.UpdateStrategyTypeUpdate, configMap), two.request(workv1.UpdateStrategyTypeUpdate, configMap)
	one.admitted(executors, first)
	client := two.admitted(executors, second)
	executors.Forget(one.executor)
	if err := apply(t.Context(), client, second.Targets[0]); err != nil {
		t.Error(err)
	}
	if err := apply(t.Context(), client, first.Targets[0]); !apierrors.IsForbidden(err) {
		t.Errorf("the other executor's object: %v", err)
	}
	if err := apply(t.Context(), one.admitted(executors, first), first.Targets[0]); err != nil {
		t.Error(err)
	}
}

// Who reads that the agent may not impersonate reads also what helps.
func TestAgentThatMayNotImpersonateSaysSo(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.allow(f.namespace, writeConfig)
	config, allow := f.agent(append(review, writeConfig)...)
	request := f.request(workv1.UpdateStrategyTypeUpdate, configMap)
	client := f.admitted(f.executors(executor.Impersonate, config), request)
	target := at(client, request.Targets[0].Object)
	_, err := target.Create(t.Context(), request.Targets[0].Object, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Fatalf("the agent acts as the executor: %v", err)
	}
	const rule = `{apiGroups: [""], resources: [serviceaccounts], resourceNames: [deployer], verbs: [impersonate]}`
	for _, want := range []string{"the agent may not act as the executor " + f.executor.String(), rule, "--executor-mode=Review", "cannot impersonate"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
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
			t.Errorf("%s: %v", what, err)
		}
	}

	allow(rule)
	if err := apply(t.Context(), client, request.Targets[0]); err != nil {
		t.Errorf("with the rule that the error gives: %v", err)
	}
}

// One denial keeps the whole work from acting, and the rules of the messages,
// pasted as they are, are all that it takes.
func TestWorkIsRefusedAsAWhole(t *testing.T) {
	t.Parallel()
	for _, mode := range executor.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.allow(f.namespace, `{apiGroups: [""], resources: [configmaps], resourceNames: ["true"], verbs: [get, update, patch]}`, getPods,
				`{apiGroups: [""], resources: [secrets], verbs: [get, create, update, patch, delete]}`)
			manifests := []string{configMap, secret, otherConfig, secretRole, bindRole, bindEverywhere, space}
			request := f.request(workv1.UpdateStrategyTypeUpdate, manifests...)
			executors := f.executors(mode, nil)
			refusal := f.refused(executors, request)
			if got, want := refusal.Message, "not applied: 6 of 7 manifests of the work are not allowed to "+f.executor.String()+"; a work is applied as a whole or not at all"; got != want {
				t.Errorf("got %s", got)
			}
			if got := slices.Sorted(maps.Keys(refusal.Manifests)); !slices.Equal(got, []int{0, 2, 3, 4, 5, 6}) {
				t.Errorf("denied are %v", got)
			}
			if got, want := refusal.Manifests[0], "not allowed to apply the resource  configmaps, "+f.namespace+" settings: the executor "+f.executor.String()+" may not "; !strings.HasPrefix(got, want) {
				t.Errorf("got %s", got)
			}

			f.make(secretRole, secretsCluster)
			refusal = f.refused(executors, request)
			for ordinal, message := range refusal.Manifests {
				namespace := request.Targets[ordinal].Namespace
				for _, rule := range ruleText.FindAllString(message, -1) {
					f.allow(namespace, rule)
				}
			}
			f.eventually("what is granted is known", func() error {
				_, err := executors.Admit(t.Context(), request)
				return err
			})
		})
	}
}

// A rule with resourceNames does not allow a POST, whatever reviews say of it.
func TestCreateLimitedByNameIsNone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.allow(f.namespace, `{apiGroups: [""], resources: [configmaps], resourceNames: [settings], verbs: [get, create, update, patch, delete]}`)
	request := f.request(workv1.UpdateStrategyTypeUpdate, configMap)
	refusal := f.refused(f.executors(executor.Impersonate, nil), request)
	if want := `with the rule {apiGroups: [""], resources: [configmaps], verbs: [create]}`; !strings.HasSuffix(refusal.Manifests[0], want) {
		t.Errorf("got %s, not %s", refusal.Manifests[0], want)
	}
	if got := f.deniedByServer(request); !slices.Equal(got, []int{0}) {
		t.Errorf("the API server denies %v", got)
	}
	f.admitted(f.executors(executor.Review, nil), request)

	applied := f.request(workv1.UpdateStrategyTypeServerSideApply, configMap)
	f.admitted(f.executors(executor.Impersonate, nil), applied)
	if got := f.deniedByServer(applied); got != nil {
		t.Errorf("the API server denies %v", got)
	}
}

func TestReadOnlyTakesGetOnly(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.allow(f.namespace, `{apiGroups: ["", rbac.authorization.k8s.io], resources: [configmaps, roles], verbs: [get]}`)
	f.admitted(f.executors(executor.Impersonate, nil), f.request(workv1.UpdateStrategyTypeReadOnly, configMap, secretRole))
	f.refused(f.executors(executor.Impersonate, nil), f.request(workv1.UpdateStrategyTypeReadOnly, secret))
	f.refused(f.executors(executor.Impersonate, nil), f.request(workv1.UpdateStrategyTypeCreateOnly, configMap))
}

// To an API server, a request about one namespace is within it.
func TestNamespaceIsWithinItself(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.allow(f.namespace, `{apiGroups: [""], resources: [namespaces], verbs: [get, patch, update, create, delete]}`)
	request := f.request(workv1.UpdateStrategyTypeServerSideApply, space)
	f.admitted(f.executors(executor.Impersonate, nil), request)
	if got := f.deniedByServer(request); got != nil {
		t.Errorf("the API server denies %v", got)
	}
	f.refused(f.executors(executor.Impersonate, nil), f.request(workv1.UpdateStrategyTypeUpdate, space))
}

func TestReviewActsAsTheAgent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.allow(f.namespace, writeConfig)
	config, _ := f.agent(append(review, writeConfig, `{apiGroups: [""], resources: [secrets], verbs: [get]}`)...)
	request := f.request(workv1.UpdateStrategyTypeUpdate, configMap)
	client := f.admitted(f.executors(executor.Review, config), request)
	if err := apply(t.Context(), client, request.Targets[0]); err != nil {
		t.Error(err)
	}
	f.make(secret)
	if _, err := at(client, f.object(secret)).Get(t.Context(), "password", metav1.GetOptions{}); err != nil {
		t.Errorf("the agent reads as itself: %v", err)
	}
}

// A binding is written also if the role before it cannot be, so a review must not
// take the manifest of the role for what is bound.
func TestReviewThinksOfRolesThatStayAsTheyAre(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.make(secretsCluster)
	f.allow("", writeRBAC, getPods)
	for _, strategy := range []workv1.UpdateStrategyType{workv1.UpdateStrategyTypeUpdate, workv1.UpdateStrategyTypeServerSideApply, workv1.UpdateStrategyTypeCreateOnly} {
		refusal := f.refused(f.executors(executor.Review, nil), f.request(strategy, podClusterRole, bindEverywhere))
		if got := slices.Collect(maps.Keys(refusal.Manifests)); !slices.Equal(got, []int{1}) || !strings.Contains(refusal.Manifests[1], "secrets") {
			t.Errorf("%s: denied are %v", strategy, refusal.Manifests)
		}
	}
}

func TestManifestsThatCannotBeJudgedAreDenied(t *testing.T) {
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
		refusal := f.refused(f.executors(executor.Impersonate, nil), f.request(workv1.UpdateStrategyTypeUpdate, manifest))
		if refusal.Manifests[0] == "" {
			t.Errorf("%s: %v", manifest, refusal)
		}
	}
}

func TestWorkWithoutExecutorActsAsTheAgent(t *testing.T) {
	t.Parallel()
	own := dynamic.New(nil)
	executors, err := executor.New(executor.Config{Managed: &rest.Config{}, Own: own, Reviewer: unasked{t}})
	if err != nil {
		t.Fatal(err)
	}
	client, err := executors.Admit(t.Context(), work.AdmitRequest{Work: &workv1.ManifestWork{}, Acting: true, Targets: []work.Target{{Resource: schema.GroupVersionResource{Resource: "pods"}}}})
	if err != nil || client != dynamic.Interface(own) {
		t.Errorf("got %v, %v", client, err)
	}
}

func TestExecutorThatIsNoServiceAccountIsRefused(t *testing.T) {
	t.Parallel()
	executors, err := executor.New(executor.Config{Managed: &rest.Config{}, Own: dynamic.New(nil), Reviewer: unasked{t}})
	if err != nil {
		t.Fatal(err)
	}
	for _, account := range []*workv1.ManifestWorkSubjectServiceAccount{nil, {}, {Namespace: "a"}, {Name: "a"}, {Namespace: "a", Name: "b:c"}, {Namespace: "a.b", Name: "c"}, {Namespace: "a:b", Name: "c"}} {
		request := work.AdmitRequest{Work: &workv1.ManifestWork{}, Acting: true}
		request.Work.Spec.Executor = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{ServiceAccount: account}}
		client, err := executors.Admit(t.Context(), request)
		var refusal *work.Refusal
		if !errors.As(err, &refusal) || client != nil {
			t.Errorf("%v: got %v, %v", account, client, err)
		}
	}
}

// unasked is a reviewer that must not be asked anything.
type unasked struct{ *testing.T }

func (u unasked) Run(context.Context, func(types.NamespacedName)) {}
func (u unasked) Forget(types.NamespacedName)                     {}

func (u unasked) Review(context.Context, types.NamespacedName, []access.Request, time.Duration) ([]access.Decision, error) {
	u.Error("a review")
	return nil, nil
}

func (u unasked) Rules(context.Context, types.NamespacedName, string) ([]rbacv1.PolicyRule, error) {
	u.Error("rules")
	return nil, nil
}

func (u unasked) RoleRules(context.Context, types.NamespacedName, rbacv1.RoleRef, string) ([]rbacv1.PolicyRule, bool, error) {
	u.Error("rules of a role")
	return nil, false, nil
}

// An agent that lacks a right of its own says which.
func TestAgentThatMayNotReviewSaysSo(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.allow(f.namespace, writeRBAC, getPods)
	config, allow := f.agent(impersonate)
	executors := f.executors(executor.Impersonate, config)
	request := f.request(workv1.UpdateStrategyTypeUpdate, podRole)
	refusal := f.refused(executors, request)
	rules := ruleText.FindAllString(refusal.Message, -1)
	if len(rules) != 2 || len(refusal.Manifests) != 0 {
		t.Fatalf("got %v", refusal)
	}
	allow(rules[0])
	if again := f.refused(executors, request); !strings.Contains(again.Message, "bindings") {
		t.Errorf("got %v", again)
	}
	allow(rules[1])
	f.eventually("the agent may review", func() error {
		_, err := executors.Admit(t.Context(), request)
		return err
	})
}

// recorder tells what is asked.
type recorder struct {
	executor.Reviewer
	ages     []time.Duration
	requests [][]access.Request
	err      error
	forgot   []types.NamespacedName
}

func (r *recorder) Forget(account types.NamespacedName) { r.forgot = append(r.forgot, account) }

func (r *recorder) Review(ctx context.Context, account types.NamespacedName, requests []access.Request, maxAge time.Duration) ([]access.Decision, error) {
	r.ages, r.requests = append(r.ages, maxAge), append(r.requests, requests)
	if r.err != nil {
		return nil, r.err
	}
	return r.Reviewer.Review(ctx, account, requests, maxAge)
}

// All manifests are asked for at once, and each request once. A pass that changes
// nothing takes any answer.
func TestAllRequestsAreReviewedAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.allow(f.namespace, writeConfig)
	r := &recorder{}
	executors := f.reviewed(executor.Impersonate, nil, func(real executor.Reviewer) executor.Reviewer { r.Reviewer = real; return r })
	request := f.request(workv1.UpdateStrategyTypeUpdate, configMap, otherConfig)
	f.admitted(executors, request)
	request.Acting = false
	f.admitted(executors, request)
	if want := []time.Duration{10 * time.Minute, 0}; !slices.Equal(r.ages, want) {
		t.Errorf("the ages are %v, not %v", r.ages, want)
	}
	// Four named ones of each, and one create of both.
	if len(r.requests[0]) != 9 {
		t.Errorf("%d requests: %v", len(r.requests[0]), r.requests[0])
	}
	f.admitted(executors, f.request(workv1.UpdateStrategyTypeUpdate))
	if len(r.requests) != 2 {
		t.Errorf("a work without objects is asked for: %v", r.requests)
	}

	r.err = errors.New("gone fishing")
	_, err := executors.Admit(t.Context(), request)
	var refusal *work.Refusal
	if !errors.Is(err, r.err) || errors.As(err, &refusal) {
		t.Errorf("what cannot be asked is no refusal: %v", err)
	}

	executors.Forget(f.executor)
	if want := []types.NamespacedName{f.executor}; !slices.Equal(r.forgot, want) {
		t.Errorf("forgotten are %v, not %v", r.forgot, want)
	}
}

func TestNewRefusesWhatIsIncomplete(t *testing.T) {
	t.Parallel()
	complete := executor.Config{Managed: &rest.Config{}, Own: dynamic.New(nil), Reviewer: unasked{t}}
	for what, change := range map[string]func(*executor.Config){
		"no cluster": func(c *executor.Config) { c.Managed = nil }, "no client": func(c *executor.Config) { c.Own = nil },
		"no reviewer": func(c *executor.Config) { c.Reviewer = nil }, "an unknown mode": func(c *executor.Config) { c.Mode = "impersonate" },
	} {
		config := complete
		change(&config)
		if _, err := executor.New(config); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
	if _, err := executor.New(complete); err != nil {
		t.Error(err)
	}
}

// What changes on the cluster is told, and the next pass judges by it.
func TestGrantAndRevocationAreTold(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.make(podRole)
	executors := f.executors(executor.Impersonate, nil)
	request := f.request(workv1.UpdateStrategyTypeUpdate, configMap, bindRole)
	f.refused(executors, request)

	f.allow(f.namespace, writeConfig, getPods, `{apiGroups: [rbac.authorization.k8s.io], resources: [rolebindings], verbs: ["*"]}`)
	told := func(what string, before int) {
		t.Helper()
		f.eventually("it is told that "+what, func() error {
			if f.changed.of(f.executor) <= before {
				return errors.New("nothing is told")
			}
			return nil
		})
	}
	told("the executor may do more", 0)
	f.eventually("the work is admitted", func() error { _, err := executors.Admit(t.Context(), request); return err })

	before := f.changed.of(f.executor)
	if err := f.kube.RbacV1().RoleBindings(f.namespace).Delete(t.Context(), f.namespace+"-held-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	told("the executor may do less", before)
	var refusal *work.Refusal
	f.eventually("the work is refused", func() error {
		if _, err := executors.Admit(t.Context(), request); !errors.As(err, &refusal) {
			return fmt.Errorf("it is admitted: %v", err)
		}
		return nil
	})
	if got := slices.Collect(maps.Keys(refusal.Manifests)); !slices.Equal(got, []int{0}) {
		t.Errorf("denied are %v", got)
	}

	// The role that is bound comes to grant more than the executor holds.
	before = f.changed.of(f.executor)
	role := f.object(secretRole)
	if _, err := at(f.admin, role).Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	told("what it binds grants more", before)
	f.eventually("the binding is refused", func() error {
		if _, err := executors.Admit(t.Context(), request); !errors.As(err, &refusal) || refusal.Manifests[1] == "" {
			return fmt.Errorf("it is not: %v", err)
		}
		return nil
	})
}

// A powerless executor is not told what the roles of the cluster grant, or which
// there are: the message goes to the hub, to whoever may have works act as it.
func TestRefusalDisclosesNoRoles(t *testing.T) {
	f := newFixture(t)
	f.make(`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: there, namespace: NS}, rules: [{apiGroups: [""], resources: [secrets], resourceNames: [undisclosed], verbs: [get]}]}`)
	executors := f.executors(executor.Impersonate, nil)
	message := func(manifest string) string {
		t.Helper()
		_, err := executors.Admit(t.Context(), f.request(workv1.UpdateStrategyTypeUpdate, manifest))
		var refusal *work.Refusal
		if !errors.As(err, &refusal) || refusal.Manifests[0] == "" {
			t.Fatalf("not refused: %v", err)
		}
		return refusal.Manifests[0]
	}
	binding := func(role string) string {
		return `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: b, namespace: NS}, roleRef: {kind: Role, name: ` + role + `}, subjects: [{kind: User, name: u}]}`
	}
	there, absent := message(binding("there")), message(binding("absent"))
	if strings.Contains(there, "undisclosed") || strings.ReplaceAll(there, `there`, `absent`) != absent {
		t.Errorf("a role is disclosed:\n%s\n%s", there, absent)
	}
	if want := `resources: [roles], resourceNames: [there], verbs: [bind]}`; !strings.Contains(there, want) {
		t.Errorf("the right to bind is not named: %s", there)
	}
	if kept := message(`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: there, namespace: NS}}`); strings.Contains(kept, "undisclosed") {
		t.Errorf("what the role has is disclosed: %s", kept)
	}
	// To who may write the binding, the API server says it as well.
	f.allow(f.namespace, `{apiGroups: [rbac.authorization.k8s.io], resources: [rolebindings], verbs: ["*"]}`)
	f.eventually("it says what is missing", func() error {
		if got := message(binding("there")); !strings.Contains(got, "undisclosed") {
			return errors.New(got)
		}
		return nil
	})
}
