package executor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	authenticationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	authenticationclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/authentication/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// boundAccount is the ManagedServiceAccount in the tests of bindings.
const boundAccount = "deployer"

var (
	// boundExecutor is the ServiceAccount that the agent reports for boundAccount.
	boundExecutor = types.NamespacedName{Namespace: framework.AccountsNamespace, Name: boundAccount}

	writeWorks = rbacv1.PolicyRule{
		APIGroups: []string{workv1.GroupName}, Resources: []string{"manifestworks"}, Verbs: []string{"get", "create", "update", "patch"},
	}
	writeAccountBindings = rbacv1.PolicyRule{
		APIGroups: []string{authenticationv1alpha1.GroupName}, Resources: []string{"managedserviceaccountbindings"}, Verbs: []string{"get", "create", "update", "patch"},
	}
)

// bindingScene is the fixture of one test of bindings. It has a cluster of its own. The test acts
// as the agent of that cluster.
type bindingScene struct {
	*fleet
	t       *testing.T
	cluster string
}

// newBindingScene returns a fixture. It creates the cluster with boundAccount, and reports the
// account as the agent.
func newBindingScene(t *testing.T) *bindingScene {
	t.Helper()
	f := shared(t)
	s := &bindingScene{fleet: f, t: t, cluster: f.SilentCluster(t)}
	s.newAccount(boundAccount, framework.AccountsNamespace)
	return s
}

// newAccount creates a ManagedServiceAccount, and reports its ServiceAccount in a namespace as the
// agent. If the namespace is empty, newAccount reports nothing.
func (s *bindingScene) newAccount(name, namespace string) {
	s.t.Helper()
	framework.CreateAccount(s.t, s.OCM, framework.NewAccount(s.cluster, name))
	if namespace != "" {
		s.ReportAccount(s.t, s.cluster, name, framework.PlacedIn(namespace, name))
	}
}

func (s *bindingScene) bindings() authenticationclient.ManagedServiceAccountBindingInterface {
	return s.OCM.AuthenticationV1alpha1().ManagedServiceAccountBindings(s.cluster)
}

// bind creates a ManagedServiceAccountBinding for an account, as an administrator.
func (s *bindingScene) bind(account string, subjects ...rbacv1.Subject) *authenticationv1alpha1.ManagedServiceAccountBinding {
	s.t.Helper()
	return framework.Must(s.bindings().Create(s.t.Context(), accountBinding(account, subjects...), metav1.CreateOptions{}))(s.t)
}

func accountBinding(account string, subjects ...rbacv1.Subject) *authenticationv1alpha1.ManagedServiceAccountBinding {
	return &authenticationv1alpha1.ManagedServiceAccountBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account + "-users"},
		Spec: authenticationv1alpha1.ManagedServiceAccountBindingSpec{
			Ref: authenticationv1alpha1.ManagedServiceAccountReference{Name: account}, Subjects: subjects,
		},
	}
}

// writer grants a caller permission to write the ManifestWorks of the cluster, without execute-as.
func (s *bindingScene) writer(c *framework.Caller) *framework.Caller {
	s.t.Helper()
	c.May(s.t, s.cluster, writeWorks)
	return c
}

func (s *bindingScene) user(groups ...string) *framework.Caller {
	s.t.Helper()
	return s.writer(framework.NewCaller(s.t, s.Hub, "writer-"+rand.String(6), groups...))
}

// newWork creates a ManifestWork with an executor, as a caller.
func (s *bindingScene) newWork(c *framework.Caller, cluster string, executor types.NamespacedName) (*workv1.ManifestWork, error) {
	work := framework.ConfigMapWork("bound-" + rand.String(6))
	work.Namespace = cluster
	work.Spec.Executor = executorOf(executor)
	return c.OCM.WorkV1().ManifestWorks(cluster).Create(s.t.Context(), work, metav1.CreateOptions{})
}

// mayExecute checks that a caller can create and change ManifestWorks with an executor, by every
// kind of write.
func (s *bindingScene) mayExecute(c *framework.Caller, executor types.NamespacedName) *workv1.ManifestWork {
	s.t.Helper()
	work, err := s.newWork(c, s.cluster, executor)
	if err != nil {
		s.t.Fatalf("create of a ManifestWork by %s = %v, want nil", c.Name, err)
	}
	for way, write := range s.changes(c, work.Name, executor) {
		if err := write(); err != nil {
			s.t.Errorf("%s of a ManifestWork by %s = %v, want nil", way, c.Name, err)
		}
	}
	return work
}

// changes returns requests that change the spec of a ManifestWork.
func (s *bindingScene) changes(c *framework.Caller, name string, executor types.NamespacedName) map[string]func() error {
	ctx, works := s.t.Context(), c.OCM.WorkV1().ManifestWorks(s.cluster)
	manifest := func(value string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"bound","namespace":"default"},"data":{"value":%q}}`, value+rand.String(6))
	}
	return map[string]func() error{
		"update": func() error {
			work, err := works.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			work.Spec.Workload.Manifests[0].Raw = []byte(manifest("update"))
			_, err = works.Update(ctx, work, metav1.UpdateOptions{})
			return err
		},
		"patch": func() error {
			_, err := works.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"workload":{"manifests":[%s]}}}`, manifest("patch")), metav1.PatchOptions{})
			return err
		},
		"apply": func() error {
			chosen, err := json.Marshal(executorOf(executor))
			if err != nil {
				return err
			}
			content := fmt.Appendf(nil, `{"apiVersion":"work.open-cluster-management.io/v1","kind":"ManifestWork","metadata":{"name":%q},"spec":{"executor":%s,"workload":{"manifests":[%s]}}}`,
				name, chosen, manifest("apply"))
			_, err = works.Patch(ctx, name, types.ApplyPatchType, content, metav1.PatchOptions{FieldManager: "test", Force: new(true)})
			return err
		},
	}
}

// mayNotExecute checks that err is a denial of an executor. The message must contain the RBAC rule
// that would allow it, and the texts.
func (s *bindingScene) mayNotExecute(err error, cluster string, executor types.NamespacedName, texts ...string) {
	s.t.Helper()
	if !apierrors.IsForbidden(err) {
		s.t.Errorf("error = %v, want 403 Forbidden", err)
		return
	}
	if got, want := ruleIn(s.t, err.Error()), executeAs(executorName(executor)); got.String() != want.String() || !strings.Contains(err.Error(), fmt.Sprintf("namespace %q", cluster)) {
		s.t.Errorf("error = %v\nwant the rule %v in namespace %s", err, want, cluster)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			s.t.Errorf("error = %v\nwant it to contain: %s", err, text)
		}
	}
}

// TestExecutorBindingSubjects checks that the subjects of a binding do not require execute-as. A
// subject is a user, a group or a service account.
func TestExecutorBindingSubjects(t *testing.T) {
	s := newBindingScene(t)
	group := "writers-" + rand.String(6)
	byName, byGroup, other := s.user(), s.user(group), s.user("others")
	robot := s.writer(framework.NewAccountCaller(t, s.Hub, "default", "robot-"+rand.String(6)))

	everybody := map[string]*framework.Caller{"user": byName, "group": byGroup, "service account": robot, "nobody": other}
	for _, c := range everybody {
		_, err := s.newWork(c, s.cluster, boundExecutor)
		s.mayNotExecute(err, s.cluster, boundExecutor)
	}
	s.bind(boundAccount, byName.Subject, groupSubject(group), robot.Subject)
	var work *workv1.ManifestWork
	for _, kind := range []string{"user", "group", "service account"} {
		c := everybody[kind]
		work = s.mayExecute(c, boundExecutor)
		choice := framework.Must(s.OCM.WorkV1().ManifestWorks(s.cluster).Get(t.Context(), work.Name, metav1.GetOptions{}))(t).Status.ExecutorChoice
		if choice == nil || choice.ChosenBy.Username != c.Name {
			t.Errorf("executorChoice = %v, want chosenBy %s", choice, c.Name)
		}
	}
	// A member of another group cannot change these ManifestWorks either.
	for way, write := range s.changes(other, work.Name, boundExecutor) {
		t.Run(way, func(t *testing.T) {
			inner := *s
			inner.t = t
			inner.mayNotExecute(write(), s.cluster, boundExecutor)
		})
	}
}

// TestExecutorBindingAllowsNoMore checks that a binding allows one executor on one cluster: the
// ServiceAccount that the agent of the cluster reports for the account.
func TestExecutorBindingAllowsNoMore(t *testing.T) {
	s := newBindingScene(t)
	c := s.user()
	s.newAccount("admin", framework.AccountsNamespace)
	s.newAccount("moved", "kube-system")
	s.newAccount("silent", "")
	for _, name := range []string{boundAccount, "moved", "silent", "absent"} {
		s.bind(name, c.Subject)
	}
	s.mayExecute(c, boundExecutor)

	for name, executor := range map[string]types.NamespacedName{
		"another account":                    {Namespace: framework.AccountsNamespace, Name: "admin"},
		"a name with the same prefix":        {Namespace: framework.AccountsNamespace, Name: boundAccount + "2"},
		"the same name in another namespace": {Namespace: "kube-system", Name: boundAccount},
	} {
		t.Run(name, func(t *testing.T) {
			inner := *s
			inner.t = t
			_, err := inner.newWork(c, s.cluster, executor)
			inner.mayNotExecute(err, s.cluster, executor)
		})
	}

	// A change to another executor requires permission for the new executor.
	work := s.mayExecute(c, boundExecutor)
	admin := types.NamespacedName{Namespace: framework.AccountsNamespace, Name: "admin"}
	chosen := framework.Must(json.Marshal(executorOf(admin)))(t)
	_, err := c.OCM.WorkV1().ManifestWorks(s.cluster).Patch(t.Context(), work.Name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"executor":%s}}`, chosen), metav1.PatchOptions{})
	s.mayNotExecute(err, s.cluster, admin)

	// The same account of another cluster is another account.
	elsewhere := newBindingScene(t)
	c.May(t, elsewhere.cluster, writeWorks)
	_, err = elsewhere.newWork(c, elsewhere.cluster, boundExecutor)
	elsewhere.mayNotExecute(err, elsewhere.cluster, boundExecutor)

	// The executor of an account is the reported ServiceAccount. Before the report, a binding has no
	// effect.
	absent, silent := types.NamespacedName{Namespace: framework.AccountsNamespace, Name: "absent"}, types.NamespacedName{Namespace: framework.AccountsNamespace, Name: "silent"}
	for _, executor := range []types.NamespacedName{absent, silent} {
		_, err = s.newWork(c, s.cluster, executor)
		s.mayNotExecute(err, s.cluster, executor, fmt.Sprintf("%q binds the user to ManagedServiceAccount %q, but has no effect: no agent has reported the account on this cluster", executor.Name+"-users", executor.Name))
	}
	s.ReportAccount(t, s.cluster, "silent", framework.PlacedIn(framework.AccountsNamespace, "silent"))
	framework.Eventually(t, "the reported ServiceAccount of account silent is allowed as executor", func(context.Context) error {
		_, err := s.newWork(c, s.cluster, silent)
		return err
	})
	asUsual, moved := types.NamespacedName{Namespace: framework.AccountsNamespace, Name: "moved"}, types.NamespacedName{Namespace: "kube-system", Name: "moved"}
	framework.Eventually(t, "the reported ServiceAccount of account moved is allowed as executor", func(context.Context) error {
		_, err := s.newWork(c, s.cluster, moved)
		return err
	})
	_, err = s.newWork(c, s.cluster, asUsual)
	s.mayNotExecute(err, s.cluster, asUsual, "the account is ServiceAccount kube-system/moved on this cluster")
}

// TestExecutorBindingRevocation checks that the removal of a subject, and the deletion of a
// binding, take effect at the next write.
func TestExecutorBindingRevocation(t *testing.T) {
	s := newBindingScene(t)
	ctx, c := t.Context(), s.user()
	binding := s.bind(boundAccount, c.Subject)
	work := s.mayExecute(c, boundExecutor)
	refused := func() {
		t.Helper()
		for way, write := range s.changes(c, work.Name, boundExecutor) {
			if err := write(); !apierrors.IsForbidden(err) {
				t.Errorf("%s = %v, want 403 Forbidden", way, err)
			}
		}
		_, err := s.newWork(c, s.cluster, boundExecutor)
		s.mayNotExecute(err, s.cluster, boundExecutor)
		// A change of metadata requires no permission for the executor.
		if _, err := c.OCM.WorkV1().ManifestWorks(s.cluster).Patch(ctx, work.Name, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"labels":{"changed":%q}}}`, rand.String(6)), metav1.PatchOptions{}); err != nil {
			t.Errorf("patch of a label = %v, want nil", err)
		}
	}

	subjects := func(subjects ...rbacv1.Subject) {
		t.Helper()
		content := framework.Must(json.Marshal(map[string]any{"spec": map[string]any{"subjects": subjects}}))(t)
		framework.Must(s.bindings().Patch(ctx, binding.Name, types.MergePatchType, content, metav1.PatchOptions{}))(t)
	}
	for range 5 {
		subjects(*framework.UserSubject("somebody-else"))
		refused()
		subjects(*framework.UserSubject("somebody-else"), c.Subject)
		s.mayExecute(c, boundExecutor)
	}

	// A binding that is being deleted has no effect, even while a finalizer keeps it.
	held := framework.Must(s.bindings().Patch(ctx, binding.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/held"]}}`), metav1.PatchOptions{}))(t)
	if err := s.bindings().Delete(ctx, held.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	refused()
	framework.Must(s.bindings().Patch(ctx, binding.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))(t)

	s.bind(boundAccount, c.Subject)
	s.mayExecute(c, boundExecutor)
	if err := s.bindings().Delete(ctx, binding.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	refused()
}

// TestExecutorBindingRequiresBind checks that every write of the spec of a binding requires bind on
// the account, in addition to permission to write bindings.
func TestExecutorBindingRequiresBind(t *testing.T) {
	s := newBindingScene(t)
	ctx := t.Context()
	s.newAccount("admin", framework.AccountsNamespace)
	c := s.user()
	c.May(t, s.cluster, writeAccountBindings)
	mine := c.OCM.AuthenticationV1alpha1().ManagedServiceAccountBindings(s.cluster)
	leave := rbacv1.PolicyRule{
		APIGroups: []string{authenticationv1alpha1.GroupName}, Resources: []string{"managedserviceaccounts"},
		ResourceNames: []string{boundAccount}, Verbs: []string{"bind"},
	}
	refused := func(err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), fmt.Sprintf("Role in namespace %q", s.cluster)) {
			t.Fatalf("error = %v, want 403 with a rule for a Role in namespace %q", err, s.cluster)
		}
		if got := ruleIn(t, err.Error()); got.String() != leave.String() {
			t.Errorf("rule in the message = %v, want %v", got, leave)
		}
	}
	apply := func(subjects ...rbacv1.Subject) error {
		binding := accountBinding(boundAccount, subjects...)
		binding.APIVersion, binding.Kind = authenticationv1alpha1.SchemeGroupVersion.String(), "ManagedServiceAccountBinding"
		_, err := mine.Patch(ctx, binding.Name, types.ApplyPatchType, framework.Must(json.Marshal(binding))(t), metav1.PatchOptions{FieldManager: "test", Force: new(true)})
		return err
	}

	_, err := mine.Create(ctx, accountBinding(boundAccount, c.Subject), metav1.CreateOptions{})
	refused(err)
	_, err = mine.Create(ctx, accountBinding(boundAccount, c.Subject), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	refused(err)
	refused(apply(c.Subject))
	if list := framework.Must(s.bindings().List(ctx, metav1.ListOptions{}))(t); len(list.Items) > 0 {
		t.Fatalf("stored bindings = %v, want none after the denial", list.Items)
	}
	_, err = s.newWork(c, s.cluster, boundExecutor)
	s.mayNotExecute(err, s.cluster, boundExecutor)

	// The caller cannot change an existing binding of another user either.
	theirs := s.bind(boundAccount, *framework.UserSubject("somebody-else"))
	toMe := framework.Must(json.Marshal(map[string]any{"spec": map[string]any{"subjects": []rbacv1.Subject{c.Subject}}}))(t)
	_, err = mine.Patch(ctx, theirs.Name, types.MergePatchType, toMe, metav1.PatchOptions{})
	refused(err)
	refused(apply(c.Subject))
	changed := theirs.DeepCopy()
	changed.Spec.Subjects = append(changed.Spec.Subjects, c.Subject)
	_, err = mine.Update(ctx, changed, metav1.UpdateOptions{})
	refused(err)
	// Removing a subject also requires bind. Deleting the binding requires only delete.
	_, err = mine.Patch(ctx, theirs.Name, types.MergePatchType, []byte(`{"spec":{"subjects":null}}`), metav1.PatchOptions{})
	refused(err)
	if _, err := mine.Patch(ctx, theirs.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("patch of a label = %v, want nil", err)
	}

	// The rule in the error message is sufficient for this account.
	c.May(t, s.cluster, leave)
	framework.Eventually(t, "the rule in the error message allows the change", func(ctx context.Context) error {
		_, err := mine.Patch(ctx, theirs.Name, types.MergePatchType, toMe, metav1.PatchOptions{})
		return err
	})
	s.mayExecute(c, boundExecutor)
	_, err = mine.Create(ctx, accountBinding("admin", c.Subject), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !slices.Equal(ruleIn(t, err.Error()).ResourceNames, []string{"admin"}) {
		t.Errorf("create of a binding for another account = %v, want 403 with a rule for account admin", err)
	}
	_, err = mine.Patch(ctx, theirs.Name, types.MergePatchType, []byte(`{"spec":{"ref":{"name":"admin"}}}`), metav1.PatchOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.ref") {
		t.Errorf("change of spec.ref = %v, want 422 Invalid", err)
	}
}

// TestExecutorBindingDefaults checks that the namespace of the account defaults to that of the
// binding and cannot differ from it. A binding without subjects causes a warning.
func TestExecutorBindingDefaults(t *testing.T) {
	s := newBindingScene(t)
	ctx := t.Context()
	admin := framework.NewCaller(t, s.Hub, "binder-"+rand.String(6), "system:masters")
	bindings := admin.OCM.AuthenticationV1alpha1().ManagedServiceAccountBindings(s.cluster)

	// Users and groups need no API group, as in the sample of the OCM enhancement proposal.
	binding := accountBinding(boundAccount, rbacv1.Subject{Kind: rbacv1.UserKind, Name: "dave"})
	created := framework.Must(bindings.Create(ctx, binding, metav1.CreateOptions{}))(t)
	if created.Spec.Ref.Namespace != s.cluster || created.Spec.Subjects[0].APIGroup != "" {
		t.Errorf("stored spec = %v, want namespace %s and the subject as it was written", created.Spec, s.cluster)
	}
	if texts := admin.Warnings.Take(); len(texts) > 0 {
		t.Errorf("warnings = %q, want none", texts)
	}
	// An update without the namespace means the namespace of the binding, so nothing changes.
	created.Spec.Ref.Namespace = ""
	if updated := framework.Must(bindings.Update(ctx, created, metav1.UpdateOptions{}))(t); updated.Generation != created.Generation || updated.Spec.Ref.Namespace != s.cluster {
		t.Errorf("stored spec = %v with generation %d, want namespace %s and generation %d", updated.Spec, updated.Generation, s.cluster, created.Generation)
	}
	framework.Must(bindings.Patch(ctx, created.Name, types.MergePatchType, []byte(`{"spec":{"subjects":[]}}`), metav1.PatchOptions{}))(t)
	if texts := admin.Warnings.Take(); len(texts) != 1 || !strings.Contains(texts[0], "grants nothing") {
		t.Errorf("warnings = %q, want one with \"grants nothing\"", texts)
	}

	elsewhere := accountBinding("elsewhere", *framework.UserSubject("dave"))
	elsewhere.Spec.Ref.Namespace = framework.Cluster1
	if _, err := bindings.Create(ctx, elsewhere, metav1.CreateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.ref.namespace") {
		t.Errorf("create of a binding for an account in another namespace = %v, want 422 Invalid for spec.ref.namespace", err)
	}
	table := framework.Must(s.Kubectl(t, "", "-n", s.cluster, "get", "msab", "-o", "wide"))(t)
	for _, text := range []string{"ACCOUNT", "SUBJECTS", "SERVICE ACCOUNTS", created.Name} {
		if !strings.Contains(table, text) {
			t.Errorf("kubectl get msab =\n%s\nwant %s in it", table, text)
		}
	}
}
