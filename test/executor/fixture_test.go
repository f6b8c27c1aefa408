package executor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	authenticated "k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/util/retry"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	// agentOnManaged is the user name of agents on their managed clusters.
	agentOnManaged = "system:serviceaccount:" + localhub.AgentNamespace + ":agent"
	// executorHome is the namespace of the executors. It need not exist.
	executorHome = "executors"
	// permissionExecutor is the executor of all ClusterPermissions on the hub of the audited fleet.
	permissionExecutor = "permissions"
	// fences is a namespace that does not exist. Requests in it mark positions of the audit log.
	fences = "audit-fences"
)

// audited starts the fleet that the tests share, at the first call. Some read the audit log of its managed cluster.
var audited = sync.OnceValues(func() (*fleet, error) {
	dir, err := framework.TempDir()
	if err != nil {
		return nil, err
	}
	f, err := framework.StartFleet(context.Background(), localhub.FleetOptions{
		Dir: filepath.Join(dir, "audited"), Clusters: []string{framework.Cluster1}, NoFsync: true,
		ManagedAuditPolicy: requestsOfAgent,
		APIServerArgs:      []string{"--work-executor=" + executorHome + "/" + permissionExecutor},
		// Without this flag, the requests of the inventory would fill the log: it lists all kinds.
		AgentArgs: []string{"--inventory=false"},
	})
	if err != nil {
		return nil, err
	}
	framework.StopAtEnd(func(context.Context) error { return f.Kill() })
	return &fleet{f}, nil
})

// fixture is the state of one test of executors. It has a namespace on the managed cluster for the
// applied objects, and an executor. The executor has no permissions, and its ServiceAccount does not
// exist.
type fixture struct {
	*fleet
	t *testing.T
	// namespace is also the prefix of all other names.
	namespace string
	executor  types.NamespacedName
}

// fixtures counts the fixtures. The number makes namespaces unique, because the namespace of a
// previous test may still be terminating.
var fixtures atomic.Int32

// newFixture returns a fixture, and creates its namespace.
func newFixture(t *testing.T, name string) *fixture {
	t.Helper()
	name = fmt.Sprintf("%s-%d", strings.ToLower(name), fixtures.Add(1))
	s := &fixture{fleet: shared(t), t: t, namespace: "executor-" + name, executor: types.NamespacedName{Namespace: executorHome, Name: name}}
	s.newNamespace(s.namespace)
	return s
}

func (s *fixture) newNamespace(name string) {
	s.t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := s.ManagedClient.CoreV1().Namespaces().Create(s.t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.atEnd(func(ctx context.Context) error {
		return s.ManagedClient.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
	})
}

// atEnd calls clean at the end of the test. NotFound is not an error.
func (s *fixture) atEnd(clean func(context.Context) error) {
	s.t.Cleanup(func() {
		if err := clean(context.WithoutCancel(s.t.Context())); err != nil && !apierrors.IsNotFound(err) {
			s.t.Error(err)
		}
	})
}

// lifecycle lists the verbs that a manifest requires if it is removed with its ManifestWork.
var lifecycle = []string{"get", "create", "update", "patch", "delete"}

func ruleFor(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

// configMaps allows all operations of ManifestWorks on ConfigMaps.
var configMaps = ruleFor("", "configmaps", lifecycle...)

func accountSubject(name types.NamespacedName) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: name.Namespace, Name: name.Name}
}

func groupSubject(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}
}

// grant grants rules to the executor in the fixture's namespace, with a Role and a RoleBinding of
// that name.
func (s *fixture) grant(name string, rules ...rbacv1.PolicyRule) {
	s.t.Helper()
	s.grantIn(s.namespace, name, rules, accountSubject(s.executor))
}

// grantIn does the same as grant, for any namespace and any subjects.
func (s *fixture) grantIn(namespace, name string, rules []rbacv1.PolicyRule, subjects ...rbacv1.Subject) {
	s.t.Helper()
	rbac := s.ManagedClient.RbacV1()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: rules}
	if _, err := rbac.Roles(namespace).Create(s.t.Context(), role, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.atEnd(func(ctx context.Context) error {
		return rbac.Roles(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	})
	s.bind(namespace, name, subjects...)
}

// bind binds subjects to the Role of the same name.
func (s *fixture) bind(namespace, name string, subjects ...rbacv1.Subject) {
	s.t.Helper()
	rbac := s.ManagedClient.RbacV1()
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   subjects,
	}
	if _, err := rbac.RoleBindings(namespace).Create(s.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.atEnd(func(ctx context.Context) error {
		return rbac.RoleBindings(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	})
}

// grantEverywhere grants rules to the executor on the whole cluster, with a ClusterRole and a
// ClusterRoleBinding of that name.
func (s *fixture) grantEverywhere(name string, rules ...rbacv1.PolicyRule) {
	s.t.Helper()
	rbac := s.ManagedClient.RbacV1()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	if _, err := rbac.ClusterRoles().Create(s.t.Context(), role, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.atEnd(func(ctx context.Context) error { return rbac.ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{}) })
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{accountSubject(s.executor)},
	}
	if _, err := rbac.ClusterRoleBindings().Create(s.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.atEnd(func(ctx context.Context) error {
		return rbac.ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{})
	})
}

// setRules replaces the rules of a Role in the fixture's namespace.
func (s *fixture) setRules(name string, rules ...rbacv1.PolicyRule) {
	s.t.Helper()
	roles := s.ManagedClient.RbacV1().Roles(s.namespace)
	s.retry(func() error {
		role, err := roles.Get(s.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		role.Rules = rules
		_, err = roles.Update(s.t.Context(), role, metav1.UpdateOptions{})
		return err
	})
}

// setSubjects replaces the subjects of a RoleBinding in the fixture's namespace.
func (s *fixture) setSubjects(name string, subjects ...rbacv1.Subject) {
	s.t.Helper()
	bindings := s.ManagedClient.RbacV1().RoleBindings(s.namespace)
	s.retry(func() error {
		binding, err := bindings.Get(s.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		binding.Subjects = subjects
		_, err = bindings.Update(s.t.Context(), binding, metav1.UpdateOptions{})
		return err
	})
}

// unbind deletes a RoleBinding in the fixture's namespace.
func (s *fixture) unbind(name string) {
	s.t.Helper()
	if err := s.ManagedClient.RbacV1().RoleBindings(s.namespace).Delete(s.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *fixture) retry(change func() error) {
	s.t.Helper()
	if err := retry.RetryOnConflict(retry.DefaultBackoff, change); err != nil {
		s.t.Fatal(err)
	}
}

// denied waits until the managed cluster denies a request to the executor. After that, no
// impersonated write can succeed.
func (s *fixture) denied(attributes authorizationv1.ResourceAttributes) {
	s.t.Helper()
	s.deniedTo(executorName(s.executor), append(serviceaccount.MakeGroupNames(s.executor.Namespace), authenticated.AllAuthenticated), attributes)
}

// deniedTo does the same as denied, for any user.
func (s *fixture) deniedTo(user string, groups []string, attributes authorizationv1.ResourceAttributes) {
	s.t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, Groups: groups, ResourceAttributes: &attributes,
	}}
	framework.Eventually(s.t, "the managed cluster denies "+user+" to "+attributes.Verb+" "+attributes.Resource, func(ctx context.Context) error {
		answer, err := s.ManagedClient.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err == nil && answer.Status.Allowed {
			return errors.New("SubjectAccessReview = allowed: " + answer.Status.Reason)
		}
		return err
	})
}

// configMap returns the manifest of a ConfigMap in the fixture's namespace.
func (s *fixture) configMap(name, value string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":%q},"data":{"value":%q}}`, name, s.namespace, value)
}

// deployment returns the manifest of a Deployment in the fixture's namespace. Its API group differs
// from that of ConfigMaps.
func (s *fixture) deployment(name string) string {
	return fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%q,"namespace":%q},"spec":{"replicas":0,
		"selector":{"matchLabels":{"app":%[1]q}},"template":{"metadata":{"labels":{"app":%[1]q}},"spec":{"containers":[{"name":"app","image":"app"}]}}}}`, name, s.namespace)
}

func executorOf(account types.NamespacedName) *workv1.ManifestWorkExecutor {
	return &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
		Type:           workv1.ExecutorSubjectTypeServiceAccount,
		ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: account.Namespace, Name: account.Name},
	}}
}

func rawManifests(contents ...string) []workv1.Manifest {
	var out []workv1.Manifest
	for _, content := range contents {
		out = append(out, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(content)}})
	}
	return out
}

// workOf returns a ManifestWork with the fixture's executor. Its name is the fixture's namespace.
func (s *fixture) workOf(contents ...string) *workv1.ManifestWork {
	return &workv1.ManifestWork{
		ObjectMeta: metav1.ObjectMeta{Namespace: framework.Cluster1, Name: s.namespace},
		Spec: workv1.ManifestWorkSpec{
			Workload: workv1.ManifestsTemplate{Manifests: rawManifests(contents...)},
			Executor: executorOf(s.executor),
		},
	}
}

// configured adds settings for one manifest to a ManifestWork, and returns the ManifestWork.
func configured(work *workv1.ManifestWork, option workv1.ManifestConfigOption) *workv1.ManifestWork {
	work.Spec.ManifestConfigs = append(work.Spec.ManifestConfigs, option)
	return work
}

// strategy returns the settings of one manifest: an update strategy, and feedback rules for the
// given paths.
func strategy(identifier workv1.ResourceIdentifier, strategy workv1.UpdateStrategyType, paths ...workv1.JsonPath) workv1.ManifestConfigOption {
	option := workv1.ManifestConfigOption{ResourceIdentifier: identifier, UpdateStrategy: &workv1.UpdateStrategy{Type: strategy}}
	if len(paths) > 0 {
		option.FeedbackRules = []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: paths}}
	}
	return option
}

// create creates ManifestWorks, and deletes them at the end of the test.
func (s *fixture) create(works ...*workv1.ManifestWork) {
	s.t.Helper()
	for _, work := range works {
		s.createWork(s.t, work)
	}
}

// change changes the spec of a ManifestWork.
func (s *fixture) change(name string, change func(*workv1.ManifestWorkSpec)) {
	s.t.Helper()
	works := s.OCM.WorkV1().ManifestWorks(framework.Cluster1)
	s.retry(func() error {
		work, err := works.Get(s.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(&work.Spec)
		_, err = works.Update(s.t.Context(), work, metav1.UpdateOptions{})
		return err
	})
}

// reports waits until the condition Applied of a ManifestWork has a status at its current
// generation, and the status contains every manifest.
func (s *fixture) reports(name string, want metav1.ConditionStatus) *workv1.ManifestWork {
	s.t.Helper()
	var work *workv1.ManifestWork
	framework.Eventually(s.t, fmt.Sprintf("ManifestWork %s has condition Applied=%s at its current generation", name, want), func(ctx context.Context) error {
		var err error
		if work, err = s.OCM.WorkV1().ManifestWorks(framework.Cluster1).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		applied := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
		if applied == nil || applied.Status != want || applied.ObservedGeneration != work.Generation || len(work.Status.ResourceStatus.Manifests) != len(work.Spec.Workload.Manifests) {
			return fmt.Errorf("generation = %d, conditions = %v", work.Generation, work.Status.Conditions)
		}
		return nil
	})
	return work
}

// said returns the message of the condition Applied of one manifest. The condition must be False
// with reason AppliedManifestFailed.
func (s *fixture) said(work *workv1.ManifestWork, ordinal int) string {
	s.t.Helper()
	applied := meta.FindStatusCondition(work.Status.ResourceStatus.Manifests[ordinal].Conditions, workv1.WorkApplied)
	if applied == nil || applied.Status != metav1.ConditionFalse || applied.Reason != workv1.ReasonAppliedManifestFailed {
		s.t.Fatalf("manifest %d of %s: Applied = %v, want False with reason %s", ordinal, work.Name, applied, workv1.ReasonAppliedManifestFailed)
	}
	return applied.Message
}

// refused waits until a ManifestWork reports that its executor lacks permissions. It checks that the
// status then contains neither feedback nor availability of the objects.
func (s *fixture) refused(name string) *workv1.ManifestWork {
	s.t.Helper()
	work := s.reports(name, metav1.ConditionFalse)
	for i, manifest := range work.Status.ResourceStatus.Manifests {
		if message := s.said(work, i); !strings.Contains(message, "not allowed") && !strings.Contains(message, "not applied") {
			s.t.Errorf("manifest %d of %s: message of Applied = %q, want \"not allowed\" or \"not applied\" in it", i, name, message)
		}
		if len(manifest.StatusFeedbacks.Values) > 0 {
			s.t.Errorf("manifest %d of %s: feedback = %v, want none", i, name, manifest.StatusFeedbacks.Values)
		}
		if available := meta.FindStatusCondition(manifest.Conditions, workv1.WorkAvailable); available == nil || available.Status != metav1.ConditionUnknown {
			s.t.Errorf("manifest %d of %s: Available = %v, want Unknown", i, name, available)
		}
	}
	return work
}

// value returns the value in a ConfigMap of the fixture. It reads as an administrator.
func (s *fixture) value(ctx context.Context, name string) (string, error) {
	object, err := s.ManagedClient.CoreV1().ConfigMaps(s.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return object.Data["value"], nil
}

// has waits until a ConfigMap has a value.
func (s *fixture) has(name, want string) {
	s.t.Helper()
	framework.Eventually(s.t, fmt.Sprintf("ConfigMap %s has the value %q", name, want), func(ctx context.Context) error {
		if got, err := s.value(ctx, name); err != nil || got != want {
			return fmt.Errorf("value = %q, error %v", got, err)
		}
		return nil
	})
}

// is checks, without waiting, that a ConfigMap has a value.
func (s *fixture) is(name, want string) {
	s.t.Helper()
	if got, err := s.value(s.t.Context(), name); err != nil || got != want {
		s.t.Errorf("value of ConfigMap %s = %q, error %v, want %q", name, got, err, want)
	}
}

// none checks, without waiting, that a ConfigMap does not exist.
func (s *fixture) none(name string) {
	s.t.Helper()
	if _, err := s.value(s.t.Context(), name); !apierrors.IsNotFound(err) {
		s.t.Errorf("get ConfigMap %s = %v, want NotFound", name, err)
	}
}

// set changes a ConfigMap as an administrator of the managed cluster.
func (s *fixture) set(name, value string) {
	s.t.Helper()
	patch := fmt.Appendf(nil, `{"data":{"value":%q}}`, value)
	if _, err := s.ManagedClient.CoreV1().ConfigMaps(s.namespace).Patch(s.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// gone deletes a ManifestWork and waits until the hub returns NotFound.
func (s *fixture) gone(name string) {
	s.t.Helper()
	works := s.OCM.WorkV1().ManifestWorks(framework.Cluster1)
	if err := works.Delete(s.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
	framework.Eventually(s.t, "ManifestWork "+name+" does not exist on the hub", func(ctx context.Context) error {
		_, err := works.Get(ctx, name, metav1.GetOptions{})
		return framework.IsGone(err)
	})
}

// took checks that an effect, which the caller has just seen, came as soon after an event as the documentation promises.
func (s *fixture) took(what string, since time.Time) {
	s.t.Helper()
	framework.Soon(s.t, what, since, time.Minute+framework.Prompt)
}
