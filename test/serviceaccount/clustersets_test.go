package serviceaccount

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// makeSet creates a set that selects clusters by the clusterset label, and deletes it at the end of
// the test.
func (f *fleet) makeSet(t *testing.T, name string) {
	t.Helper()
	sets := f.OCM.ClusterV1beta2().ManagedClusterSets()
	if _, err := sets.Create(t.Context(), &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sets.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

// unjoined returns a ManagedCluster without an agent.
func unjoined(name, set string) *clusterv1.ManagedCluster {
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if set != "" {
		cluster.Labels = map[string]string{clusterv1beta2.ClusterSetLabel: set}
	}
	return cluster
}

// makeCluster creates a ManagedCluster, and deletes it at the end of the test.
func (f *fleet) makeCluster(t *testing.T, name, set string) *clusterv1.ManagedCluster {
	t.Helper()
	created := framework.Must(f.OCM.ClusterV1().ManagedClusters().Create(t.Context(), unjoined(name, set), metav1.CreateOptions{}))(t)
	f.deleteClusterLater(t, name)
	return created
}

func (f *fleet) deleteClusterLater(t *testing.T, name string) {
	t.Helper()
	t.Cleanup(func() {
		err := f.OCM.ClusterV1().ManagedClusters().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

func intoSet(set string) []byte {
	return []byte(fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, clusterv1beta2.ClusterSetLabel, set))
}

// move moves a cluster to a set as an administrator.
func (f *fleet) move(t *testing.T, cluster, set string) {
	t.Helper()
	if _, err := f.OCM.ClusterV1().ManagedClusters().Patch(t.Context(), cluster, types.MergePatchType, intoSet(set), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// says waits until the condition of a set reports this number of clusters.
func (f *fleet) says(t *testing.T, set string, clusters int) {
	t.Helper()
	want := metav1.Condition{Status: metav1.ConditionFalse, Reason: clusterv1beta2.ReasonClustersSelected, Message: fmt.Sprintf("%d ManagedClusters selected", clusters)}
	if clusters == 0 {
		want = metav1.Condition{Status: metav1.ConditionTrue, Reason: clusterv1beta2.ReasonNoClusterMatched, Message: "No ManagedCluster selected"}
	}
	framework.Eventually(t, fmt.Sprintf("condition ClusterSetEmpty of set %s reports %d clusters", set, clusters), func(ctx context.Context) error {
		set, err := f.OCM.ClusterV1beta2().ManagedClusterSets().Get(ctx, set, metav1.GetOptions{})
		if err != nil {
			return err
		}
		got := meta.FindStatusCondition(set.Status.Conditions, clusterv1beta2.ConditionClusterSetEmpty)
		if got == nil || got.Status != want.Status || got.Reason != want.Reason || got.Message != want.Message || got.ObservedGeneration != set.Generation {
			return fmt.Errorf("conditions = %v", set.Status.Conditions)
		}
		return nil
	})
}

// The conditions of a set follow its clusters. The conditions of a binding follow its set.
func TestSetsFollowClusters(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := t.Context()
	const blue, green, byTeam, namespace = "follow-blue", "follow-green", "follow-team", "follow-sets"
	f.makeSet(t, blue)
	f.makeSet(t, green)
	sets := f.OCM.ClusterV1beta2().ManagedClusterSets()
	selecting := &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: byTeam}, Spec: clusterv1beta2.ManagedClusterSetSpec{
		ClusterSelector: clusterv1beta2.ManagedClusterSelector{
			SelectorType:  clusterv1beta2.LabelSelector,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "follow"}},
		},
	}}
	if _, err := sets.Create(ctx, selecting, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sets.Delete(context.WithoutCancel(ctx), byTeam, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	f.says(t, blue, 0)

	f.makeCluster(t, "follow-1", blue)
	f.makeCluster(t, "follow-2", blue)
	f.says(t, blue, 2)
	f.move(t, "follow-1", green)
	f.says(t, blue, 1)
	f.says(t, green, 1)
	f.says(t, byTeam, 0)
	clusters := f.OCM.ClusterV1().ManagedClusters()
	if _, err := clusters.Patch(ctx, "follow-1", types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"follow"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	f.says(t, byTeam, 1)
	// A deleted cluster is in no set.
	if err := clusters.Delete(ctx, "follow-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.says(t, green, 0)
	f.says(t, byTeam, 0)

	if _, err := f.HubClient.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bindings := f.OCM.ClusterV1beta2().ManagedClusterSetBindings(namespace)
	if _, err := bindings.Create(ctx, bindingOf(blue), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bound := func(status metav1.ConditionStatus, reason string) {
		t.Helper()
		framework.Eventually(t, "condition Bound of the binding has reason "+reason, func(ctx context.Context) error {
			binding, err := bindings.Get(ctx, blue, metav1.GetOptions{})
			if err != nil {
				return err
			}
			got := meta.FindStatusCondition(binding.Status.Conditions, clusterv1beta2.ConditionBound)
			if got == nil || got.Status != status || got.Reason != reason {
				return fmt.Errorf("conditions = %v", binding.Status.Conditions)
			}
			return nil
		})
	}
	bound(metav1.ConditionTrue, clusterv1beta2.ReasonClusterSetBound)
	// A set may be deleted while it has clusters.
	if err := sets.Delete(ctx, blue, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	bound(metav1.ConditionFalse, clusterv1beta2.ReasonClusterSetNotFound)
}

func bindingOf(set string) *clusterv1beta2.ManagedClusterSetBinding {
	return &clusterv1beta2.ManagedClusterSetBinding{
		ObjectMeta: metav1.ObjectMeta{Name: set},
		Spec:       clusterv1beta2.ManagedClusterSetBindingSpec{ClusterSet: set},
	}
}

// A cluster without a set is in the set default, after every kind of write.
func TestDefaultSet(t *testing.T) {
	f := shared(t)
	ctx := t.Context()
	const name = "in-default"
	f.makeSet(t, "default-elsewhere")
	clusters := f.OCM.ClusterV1().ManagedClusters()
	want := func(cluster *clusterv1.ManagedCluster, set, after string) {
		t.Helper()
		if got := cluster.Labels[clusterv1beta2.ClusterSetLabel]; got != set {
			t.Errorf("set of the cluster after %s = %q, want %q", after, got, set)
		}
	}
	want(f.makeCluster(t, name, ""), "default", "a create without labels")
	f.move(t, name, "default-elsewhere")
	want(framework.Must(clusters.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":null}}`), metav1.PatchOptions{}))(t), "default", "a patch that removes the labels")
	f.move(t, name, "default-elsewhere")
	bare := framework.Must(clusters.Get(ctx, name, metav1.GetOptions{}))(t)
	bare.Labels = nil
	want(framework.Must(clusters.Update(ctx, bare, metav1.UpdateOptions{}))(t), "default", "an update without labels")

	const applied = "in-default-applied"
	f.deleteClusterLater(t, applied)
	apply := func(content string) *clusterv1.ManagedCluster {
		t.Helper()
		return framework.Must(clusters.Patch(ctx, applied, types.ApplyPatchType, []byte(content), metav1.PatchOptions{FieldManager: "test"}))(t)
	}
	head := `{"apiVersion":"cluster.open-cluster-management.io/v1","kind":"ManagedCluster","metadata":{"name":"` + applied + `"`
	want(apply(head+`}}`), "default", "a server-side apply")
	want(apply(head+`,"labels":{"a":"b"}}}`), "default", "a server-side apply of other labels")
}

// The sets default and global exist on every hub. The server creates them again after a deletion, and
// rejects changes of their selectors.
func TestWellKnownSets(t *testing.T) {
	f := shared(t)
	ctx := t.Context()
	sets := f.OCM.ClusterV1beta2().ManagedClusterSets()
	for _, name := range []string{clusterv1beta2.DefaultClusterSet, clusterv1beta2.GlobalClusterSet} {
		var first *clusterv1beta2.ManagedClusterSet
		framework.Eventually(t, "set "+name+" exists", func(ctx context.Context) (err error) {
			first, err = sets.Get(ctx, name, metav1.GetOptions{})
			return err
		})
		if err := sets.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, "set "+name+" is created again", func(ctx context.Context) error {
			again, err := sets.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if again.UID == first.UID {
				return fmt.Errorf("the previous set still exists")
			}
			if got := meta.FindStatusCondition(again.Status.Conditions, clusterv1beta2.ConditionClusterSetEmpty); got == nil || got.Status != metav1.ConditionFalse {
				return fmt.Errorf("conditions = %v, want ClusterSetEmpty False", again.Status.Conditions)
			}
			return nil
		})
	}
	_, err := sets.Patch(ctx, clusterv1beta2.GlobalClusterSet, types.MergePatchType,
		[]byte(`{"spec":{"clusterSelector":{"labelSelector":{"matchLabels":{"a":"b"}}}}}`), metav1.PatchOptions{})
	if !apierrors.IsInvalid(err) || !slices.Equal(framework.InvalidFields(err), []string{"spec.clusterSelector.labelSelector"}) {
		t.Errorf("Patch(selector of the set global) = %v, want 422 for spec.clusterSelector.labelSelector", err)
	}
}

// grant grants rules to a user in all namespaces of the hub, and returns a client of the user.
func (f *fleet) grant(t *testing.T, name string, rules ...rbacv1.PolicyRule) *versioned.Clientset {
	t.Helper()
	if _, err := f.HubClient.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := f.HubClient.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{*framework.UserSubject(name)},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := f.Hub.UserConfig(name)
	client := framework.OCMClient(t, config, err)
	// A new grant takes effect after a delay. The server would cache the denials until then.
	framework.Eventually(t, "user "+name+" can list ManagedClusters", func(ctx context.Context) error {
		_, err := client.ClusterV1().ManagedClusters().List(ctx, metav1.ListOptions{})
		return err
	})
	return client
}

// editClusters and editBindings grant no permission for a set.
var (
	editClusters = rbacv1.PolicyRule{APIGroups: []string{clusterv1.GroupName}, Resources: []string{"managedclusters"}, Verbs: []string{"get", "list", "create", "update", "patch"}}
	editBindings = rbacv1.PolicyRule{APIGroups: []string{clusterv1.GroupName}, Resources: []string{"managedclustersetbindings"}, Verbs: []string{"create", "update", "patch"}}
)

func onSet(subresource string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{"cluster.open-cluster-management.io"}, Resources: []string{"managedclustersets/" + subresource},
		ResourceNames: names, Verbs: []string{"create"},
	}
}

// wantRefused checks that an error is 403 and contains the missing rule.
func wantRefused(t *testing.T, err error, subresource, set string) {
	t.Helper()
	rule := fmt.Sprintf("{apiGroups: [cluster.open-cluster-management.io], resources: [managedclustersets/%s], resourceNames: [%s], verbs: [create]}", subresource, set)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), rule) {
		t.Errorf("error = %v, want 403 with %s", err, rule)
	}
}

// TestJoin checks that a user with permission to edit ManagedClusters can move a cluster only with
// permission to join both the old and the new set.
func TestJoin(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := t.Context()
	const mine, theirs = "join-mine", "join-theirs"
	f.makeSet(t, mine)
	f.makeSet(t, theirs)
	outsider := f.grant(t, "join-outsider", editClusters).ClusterV1().ManagedClusters()
	member := f.grant(t, "join-member", editClusters, onSet("join", mine)).ClusterV1().ManagedClusters()
	both := f.grant(t, "join-both", editClusters, onSet("join", mine, theirs)).ClusterV1().ManagedClusters()

	// A create without a set joins the set default.
	_, err := outsider.Create(ctx, unjoined("join-created", ""), metav1.CreateOptions{})
	wantRefused(t, err, "join", "default")
	_, err = member.Create(ctx, unjoined("join-created", theirs), metav1.CreateOptions{})
	wantRefused(t, err, "join", theirs)
	_, err = member.Create(ctx, unjoined("join-created", mine), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Errorf("dry-run Create with permission = %v, want nil", err)
	}
	applied := []byte(`{"apiVersion":"cluster.open-cluster-management.io/v1","kind":"ManagedCluster","metadata":{"name":"join-created"}}`)
	_, err = member.Patch(ctx, "join-created", types.ApplyPatchType, applied, metav1.PatchOptions{FieldManager: "test"})
	wantRefused(t, err, "join", "default")
	if _, err := f.OCM.ClusterV1().ManagedClusters().Get(ctx, "join-created", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get(join-created) after the rejections = %v, want NotFound", err)
	}
	if _, err := member.Create(ctx, unjoined("join-created", mine), metav1.CreateOptions{}); err != nil {
		t.Fatalf("Create with permission = %v, want nil", err)
	}
	f.deleteClusterLater(t, "join-created")

	// Every kind of write that moves the cluster requires permission.
	for way, move := range map[string]func(set string) error{
		"patch": func(set string) error {
			_, err := member.Patch(ctx, "join-created", types.MergePatchType, intoSet(set), metav1.PatchOptions{})
			return err
		},
		"update": func(set string) error {
			cluster := framework.Must(member.Get(ctx, "join-created", metav1.GetOptions{}))(t)
			cluster.Labels = map[string]string{clusterv1beta2.ClusterSetLabel: set}
			_, err := member.Update(ctx, cluster, metav1.UpdateOptions{})
			return err
		},
		"apply": func(set string) error {
			content := fmt.Sprintf(`{"apiVersion":"cluster.open-cluster-management.io/v1","kind":"ManagedCluster","metadata":{"name":"join-created","labels":{%q:%q}}}`, clusterv1beta2.ClusterSetLabel, set)
			_, err := member.Patch(ctx, "join-created", types.ApplyPatchType, []byte(content), metav1.PatchOptions{FieldManager: "test", Force: new(true)})
			return err
		},
	} {
		t.Run(way, func(t *testing.T) { wantRefused(t, move(theirs), "join", theirs) })
	}
	_, err = member.Patch(ctx, "join-created", types.JSONPatchType,
		[]byte(`[{"op":"remove","path":"/metadata/labels/cluster.open-cluster-management.io~1clusterset"}]`), metav1.PatchOptions{})
	wantRefused(t, err, "join", "default")
	// The removal of a cluster from a set requires permission for that set.
	f.move(t, "join-created", theirs)
	_, err = member.Patch(ctx, "join-created", types.MergePatchType, intoSet(mine), metav1.PatchOptions{})
	wantRefused(t, err, "join", theirs)

	// A change that keeps the set requires no permission.
	if _, err := outsider.Patch(ctx, "join-created", types.MergePatchType, []byte(`{"metadata":{"labels":{"other":"yes"}},"spec":{"leaseDurationSeconds":75}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("Patch that keeps the set = %v, want nil", err)
	}
	if _, err := both.Patch(ctx, "join-created", types.MergePatchType, intoSet(mine), metav1.PatchOptions{}); err != nil {
		t.Errorf("Patch with permission for both sets = %v, want nil", err)
	}
}

// TestBind checks that binding a set to a namespace requires permission for that set.
func TestBind(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := t.Context()
	const set, namespace = "bind-set", "bind-namespace"
	f.makeSet(t, set)
	if _, err := f.HubClient.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	outsider := f.grant(t, "bind-outsider", editClusters, editBindings, onSet("join", set)).ClusterV1beta2().ManagedClusterSetBindings(namespace)
	member := f.grant(t, "bind-member", editClusters, editBindings, onSet("bind", set)).ClusterV1beta2().ManagedClusterSetBindings(namespace)

	_, err := outsider.Create(ctx, bindingOf(set), metav1.CreateOptions{})
	wantRefused(t, err, "bind", set)
	content := []byte(fmt.Sprintf(`{"apiVersion":"cluster.open-cluster-management.io/v1beta2","kind":"ManagedClusterSetBinding","metadata":{"name":%q},"spec":{"clusterSet":%[1]q}}`, set))
	_, err = outsider.Patch(ctx, set, types.ApplyPatchType, content, metav1.PatchOptions{FieldManager: "test"})
	wantRefused(t, err, "bind", set)
	_, err = member.Create(ctx, bindingOf("default"), metav1.CreateOptions{})
	wantRefused(t, err, "bind", "default")
	if _, err := member.Create(ctx, bindingOf(set), metav1.CreateOptions{}); err != nil {
		t.Fatalf("Create of a binding with permission = %v, want nil", err)
	}
	// A change of the labels of a binding requires no permission for its set. The set cannot be
	// changed.
	if _, err := outsider.Patch(ctx, set, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("Patch of a label = %v, want nil", err)
	}
	if _, err := member.Patch(ctx, set, types.MergePatchType, []byte(`{"spec":{"clusterSet":"default"}}`), metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("Patch of spec.clusterSet = %v, want 422", err)
	}
}
