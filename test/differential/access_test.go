package differential_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	typedrbacv1 "k8s.io/client-go/kubernetes/typed/rbac/v1"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/fleetgen"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
	"open-cluster-management.io/hub-apiserver/test/seed"
)

const (
	reviewsEnv     = "ACCESS_REVIEWS"
	defaultReviews = 20_000
	// reviewsOfPolicy is the number of reviews between two changes of the policy.
	reviewsOfPolicy = 2_000
	// changesOfPolicy is the number of objects that a change writes.
	changesOfPolicy = 60
	reviewers       = 16
	accessCluster   = "managed"
)

var (
	accessNamespaces = []string{"access-a", "access-b", "access-c"}
	accessNames      = []string{"one", "two", "three", "four", "five", "six", "seven", "eight"}
	accessVerbs      = []string{"get", "list", "create", "delete", "*", "bind", "impersonate"}
	accessGroups     = []string{"", "apps", "example.com", "*"}
	accessResources  = []string{"pods", "pods/log", "pods/*", "*/log", "*/scale", "deployments", "deployments/scale", "secrets", "widgets", "*"}
	accessObjects    = []string{"a", "b", "*"}
	accessURLs       = []string{"/metrics", "/metrics/*", "/met*", "/healthz/**", "*", "/apis/*/x", "/"}
	accessPaths      = []string{"/metrics", "/metrics/", "/metrics/slow", "/metal", "/healthz", "/healthz/etcd", "/apis/*/x", "/apis/y/x", "/", ""}
	accessUsers      = []string{"alice", "bob", "carol", "system:kube-scheduler", "system:anonymous", "system:serviceaccount:access-a:one", "system:serviceaccount:access-b:two"}
	accessUserGroups = []string{"devs", "ops", "system:authenticated", "system:unauthenticated", "system:serviceaccounts", "system:serviceaccounts:access-a", "system:monitoring", "system:masters"}
)

// aggregationLabel selects the sources of the aggregated ClusterRoles by its value.
const aggregationLabel = "differential.example.com/aggregate-to"

func anyOf[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

func anySome(r *rand.Rand, list []string, least, most int) []string {
	var picked []string
	for range least + r.IntN(most-least+1) {
		picked = append(picked, anyOf(r, list))
	}
	return picked
}

// TestFleetAccessMatchesAPIServer compares the answers of the index with those of a real
// API server, while the RBAC of its cluster changes at random.
func TestFleetAccessMatchesAPIServer(t *testing.T) {
	total := number(t, reviewsEnv, defaultReviews)
	cluster := framework.OwnCluster(t, localhub.ClusterOptions{Name: accessCluster, NoFsync: true})
	config := cluster.AdminConfig()
	config.QPS = -1
	config.ContentType = runtime.ContentTypeProtobuf
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range accessNamespaces {
		if _, err := kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	d := &accessDifferential{kube: kube, rbac: kube.RbacV1(), rng: seed.Rand(t), index: access.New()}
	d.index.SetState(accessCluster, access.State{Known: true})
	started := time.Now()
	for step := 0; step*reviewsOfPolicy < total; step++ {
		if err := d.changePolicy(t.Context(), step); err != nil {
			t.Fatalf("policy %d: %v", step, err)
		}
		if err := d.report(t.Context(), step); err != nil {
			t.Fatalf("policy %d: %v", step, err)
		}
		if err := d.compare(t.Context(), min(reviewsOfPolicy, total-step*reviewsOfPolicy)); err != nil {
			t.Fatalf("policy %d: %v", step, err)
		}
		if len(d.wrong) > 0 {
			t.Fatalf("policy %d: the index and the API server disagree:\n%s", step, strings.Join(d.wrong, "\n"))
		}
	}
	t.Logf("%d reviews in %s: %d allowed, 0 differences", d.reviews, time.Since(started).Round(time.Second), d.allowed)
	if d.allowed < total/20 || d.allowed > total*19/20 {
		t.Errorf("%d of %d reviews are allowed, want a mix of answers", d.allowed, total)
	}
}

type accessDifferential struct {
	kube  kubernetes.Interface
	rbac  typedrbacv1.RbacV1Interface
	rng   *rand.Rand
	index *access.Index
	// reported is what the index has.
	reported *access.Update

	mu               sync.Mutex
	reviews, allowed int
	wrong            []string
}

func (d *accessDifferential) rules(namespaced bool) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for range d.rng.IntN(4) {
		if !namespaced && d.rng.IntN(4) == 0 {
			rules = append(rules, rbacv1.PolicyRule{Verbs: anySome(d.rng, accessVerbs, 1, 2), NonResourceURLs: anySome(d.rng, accessURLs, 1, 2)})
			continue
		}
		rule := rbacv1.PolicyRule{
			Verbs: anySome(d.rng, accessVerbs, 1, 3), APIGroups: anySome(d.rng, accessGroups, 1, 2), Resources: anySome(d.rng, accessResources, 1, 3),
		}
		if d.rng.IntN(3) == 0 {
			rule.ResourceNames = anySome(d.rng, accessObjects, 1, 2)
		}
		rules = append(rules, rule)
	}
	return rules
}

func (d *accessDifferential) subjects() []rbacv1.Subject {
	var subjects []rbacv1.Subject
	for range 1 + d.rng.IntN(3) {
		switch d.rng.IntN(3) {
		case 0:
			subjects = append(subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: anyOf(d.rng, accessUsers)})
		case 1:
			// Not system:masters, whose bindings decide nothing.
			subjects = append(subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: anyOf(d.rng, accessUserGroups[:7])})
		default:
			subjects = append(subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: anyOf(d.rng, accessNamespaces), Name: anyOf(d.rng, accessNames[:3])})
		}
	}
	return subjects
}

// changePolicy replaces or deletes random objects, and waits until the API server uses them.
func (d *accessDifferential) changePolicy(ctx context.Context, step int) error {
	for range changesOfPolicy {
		if err := d.changeObject(ctx); err != nil {
			return err
		}
	}
	if err := await.Poll(ctx, d.aggregated); err != nil {
		return fmt.Errorf("waiting until the rules are aggregated: %w", err)
	}
	return d.settled(ctx, fmt.Sprintf("marker-%d", step))
}

func (d *accessDifferential) changeObject(ctx context.Context) error {
	name, namespace, deleted := anyOf(d.rng, accessNames), anyOf(d.rng, accessNamespaces), d.rng.IntN(5) == 0
	m := metav1.ObjectMeta{Name: name}
	switch d.rng.IntN(4) {
	case 0:
		role := &rbacv1.ClusterRole{ObjectMeta: m, Rules: d.rules(false)}
		switch d.rng.IntN(3) {
		case 0:
			role.Labels = map[string]string{aggregationLabel: anyOf(d.rng, accessNames)}
		case 1:
			role.Rules = nil
			role.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{aggregationLabel: name}}}}
		}
		return replaceObject(ctx, d.rbac.ClusterRoles(), role, deleted)
	case 1:
		m.Namespace = namespace
		return replaceObject(ctx, d.rbac.Roles(namespace), &rbacv1.Role{ObjectMeta: m, Rules: d.rules(true)}, deleted)
	case 2:
		return replaceObject(ctx, d.rbac.ClusterRoleBindings(), &rbacv1.ClusterRoleBinding{ObjectMeta: m, RoleRef: clusterRoleRef(anyOf(d.rng, accessNames)), Subjects: d.subjects()}, deleted)
	}
	m.Namespace = namespace
	b := &rbacv1.RoleBinding{ObjectMeta: m, RoleRef: clusterRoleRef(anyOf(d.rng, accessNames)), Subjects: d.subjects()}
	if d.rng.IntN(2) == 0 {
		b.RoleRef.Kind = rbac.KindRole
	}
	if d.rng.IntN(3) == 0 {
		// Without a namespace, the ServiceAccount is in that of the binding.
		b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: anyOf(d.rng, accessNames[:3])})
	}
	return replaceObject(ctx, d.rbac.RoleBindings(namespace), b, deleted)
}

// replacer is the part of a client that replaces objects. The role of a binding cannot be
// updated.
type replacer[T metav1.Object] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
}

func replaceObject[T metav1.Object](ctx context.Context, client replacer[T], object T, deleted bool) error {
	if err := client.Delete(ctx, object.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if deleted {
		return nil
	}
	_, err := client.Create(ctx, object, metav1.CreateOptions{})
	return err
}

// aggregated returns an error until each aggregated ClusterRole has the rules of its sources.
func (d *accessDifferential) aggregated(ctx context.Context) error {
	list, err := d.rbac.ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		role := &list.Items[i]
		if role.AggregationRule == nil || !slices.Contains(accessNames, role.Name) {
			continue
		}
		var want []rbacv1.PolicyRule
		for _, source := range list.Items {
			if source.Labels[aggregationLabel] != role.Name {
				continue
			}
			for _, rule := range source.Rules {
				if !slices.ContainsFunc(want, func(other rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(rule, other) }) {
					want = append(want, rule)
				}
			}
		}
		if !equality.Semantic.DeepEqual(role.Rules, want) {
			return fmt.Errorf("ClusterRole %s has %d rules, want the %d rules of its sources", role.Name, len(role.Rules), len(want))
		}
	}
	return nil
}

// settled writes one more object of each kind and waits until the API server uses it. Its
// authorizer receives the objects of a kind in the order of their writes.
func (d *accessDifferential) settled(ctx context.Context, name string) error {
	m := metav1.ObjectMeta{Name: name}
	inNamespace := metav1.ObjectMeta{Name: name, Namespace: accessNamespaces[0]}
	rules := []rbacv1.PolicyRule{{APIGroups: []string{"differential.example.com"}, Resources: []string{"markers"}, Verbs: []string{"get"}}}
	user := func(kind string) []rbacv1.Subject {
		return []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name + "-" + kind}}
	}
	role := clusterRoleRef(name)
	role.Kind = rbac.KindRole
	if err := replaceObject(ctx, d.rbac.ClusterRoles(), &rbacv1.ClusterRole{ObjectMeta: m, Rules: rules}, false); err != nil {
		return err
	}
	if err := replaceObject(ctx, d.rbac.Roles(accessNamespaces[0]), &rbacv1.Role{ObjectMeta: inNamespace, Rules: rules}, false); err != nil {
		return err
	}
	if err := replaceObject(ctx, d.rbac.ClusterRoleBindings(), &rbacv1.ClusterRoleBinding{ObjectMeta: m, RoleRef: clusterRoleRef(name), Subjects: user("cluster")}, false); err != nil {
		return err
	}
	if err := replaceObject(ctx, d.rbac.RoleBindings(accessNamespaces[0]), &rbacv1.RoleBinding{ObjectMeta: inNamespace, RoleRef: role, Subjects: user("namespace")}, false); err != nil {
		return err
	}
	return await.Poll(ctx, func(ctx context.Context) error {
		for _, kind := range []string{"cluster", "namespace"} {
			answer, err := d.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               name + "-" + kind,
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Group: "differential.example.com", Resource: "markers", Namespace: accessNamespaces[0]},
			}}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			if !answer.Status.Allowed {
				return fmt.Errorf("the API server does not use the binding of %s-%s yet", name, kind)
			}
		}
		return nil
	})
}

// report sends the RBAC of the cluster to the index: all of it, or what has changed.
func (d *accessDifferential) report(ctx context.Context, step int) error {
	now, err := fleetgen.AccessOf(ctx, d.rbac)
	if err != nil {
		return err
	}
	u := now
	if step%4 != 0 {
		u = changed(d.reported, now)
	}
	d.index.Update(accessCluster, u)
	d.reported = now
	if roles, bindings := d.index.Totals(accessCluster); roles != len(now.Roles) || bindings != len(now.Bindings) {
		return fmt.Errorf("the index has %d roles and %d bindings, want %d and %d", roles, bindings, len(now.Roles), len(now.Bindings))
	}
	return nil
}

// changed returns the difference of two full updates.
func changed(before, now *access.Update) *access.Update {
	u := &access.Update{Roles: map[rbac.Key][]rbacv1.PolicyRule{}, Bindings: map[rbac.Key]access.Binding{}}
	for key, rules := range now.Roles {
		if old, found := before.Roles[key]; !found || !equality.Semantic.DeepEqual(old, rules) {
			u.Roles[key] = rules
		}
	}
	for key, b := range now.Bindings {
		if old, found := before.Bindings[key]; !found || !equality.Semantic.DeepEqual(old, b) {
			u.Bindings[key] = b
		}
	}
	for key := range before.Roles {
		if _, found := now.Roles[key]; !found {
			u.DeletedRoles = append(u.DeletedRoles, key)
		}
	}
	for key := range before.Bindings {
		if _, found := now.Bindings[key]; !found {
			u.DeletedBindings = append(u.DeletedBindings, key)
		}
	}
	return u
}

// question returns a random review.
func (d *accessDifferential) question(r *rand.Rand) authorizationv1.SubjectAccessReviewSpec {
	s := access.Subject{User: anyOf(r, accessUsers), Groups: anySome(r, accessUserGroups[:7], 0, 3)}
	switch r.IntN(8) {
	case 0:
		s = access.SubjectFor(fmt.Sprintf("system:serviceaccount:%s:%s", anyOf(r, accessNamespaces), anyOf(r, accessNames[:3])), nil)
	case 1:
		s = access.SubjectFor(s.User, s.Groups)
	case 2:
		if r.IntN(10) == 0 {
			s.Groups = append(s.Groups, accessUserGroups[7])
		}
	}
	spec := authorizationv1.SubjectAccessReviewSpec{User: s.User, Groups: s.Groups}
	if r.IntN(5) == 0 {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: anyOf(r, accessVerbs), Path: anyOf(r, accessPaths)}
		return spec
	}
	resource, subresource, _ := strings.Cut(anyOf(r, accessResources), "/")
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Verb: anyOf(r, accessVerbs), Group: anyOf(r, accessGroups), Resource: resource, Subresource: subresource,
		Namespace: anyOf(r, append(accessNamespaces, "", "other")), Name: anyOf(r, []string{"", "", "a", "b", "c"}),
	}
	return spec
}

// compare sends reviews to the API server and compares the answers.
func (d *accessDifferential) compare(ctx context.Context, reviews int) error {
	group, ctx := errgroup.WithContext(ctx)
	for worker := range reviewers {
		r := rand.New(rand.NewPCG(d.rng.Uint64(), uint64(worker)))
		group.Go(func() error {
			for range (reviews + worker) / reviewers {
				if err := d.compareOne(ctx, d.question(r)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func (d *accessDifferential) compareOne(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) error {
	answer, err := d.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	var a access.Attributes
	if path := spec.NonResourceAttributes; path != nil {
		a = access.Attributes{Verb: path.Verb, NonResource: true, Path: path.Path}
	} else {
		r := spec.ResourceAttributes
		a = access.Attributes{Verb: r.Verb, Namespace: r.Namespace, Group: r.Group, Resource: r.Resource, Subresource: r.Subresource, Name: r.Name}
	}
	got := d.index.CanI(access.Subject{User: spec.User, Groups: spec.Groups}, a, []string{accessCluster}, 100)[0]
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reviews++
	if answer.Status.Allowed {
		d.allowed++
	}
	if disagreement := disagrees(&answer.Status, &got); disagreement != "" && len(d.wrong) < maxWrong {
		d.wrong = append(d.wrong, fmt.Sprintf("%s: %s", framework.ToJSON(spec), disagreement))
	}
	return nil
}

// disagrees returns how an answer differs from that of the API server, whose reason names
// one of the bindings that allow the request.
func disagrees(want *authorizationv1.SubjectAccessReviewStatus, got *access.Answer) string {
	if want.Allowed != (got.Decision == access.Allowed) || got.Decision == access.Unknown {
		return fmt.Sprintf("the index says %s (%s), the API server allowed=%t (%s)", got.Decision, got.Reason, want.Allowed, want.Reason)
	}
	if !want.Allowed || got.Reason == access.ReasonMasters {
		return ""
	}
	for _, c := range got.Chains {
		name := fmt.Sprintf("%s %q of ", c.Binding.Kind, c.Binding.Name)
		if c.Binding.Namespace != "" {
			name = fmt.Sprintf("%s %q of ", c.Binding.Kind, c.Binding.Name+"/"+c.Binding.Namespace)
		}
		if strings.HasPrefix(want.Reason, "RBAC: allowed by "+name) {
			return ""
		}
	}
	return fmt.Sprintf("no chain of %d is that of the API server: %s", len(got.Chains), want.Reason)
}
