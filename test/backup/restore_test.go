package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver/etcd"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// fleet is a fleet with a cluster whose agent evicts at once.
type fleet struct {
	*framework.Fleet
	adm *localhub.Clusteradm
}

// object is the version of an object on the managed cluster.
type object struct {
	uid     types.UID
	version string
}

func configMap(name string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"default"}}`, name)
}

func (f *fleet) create(t *testing.T, name string, more ...string) {
	t.Helper()
	work := framework.ConfigMapWork(name, more...)
	if _, err := f.OCM.WorkV1().ManifestWorks(framework.Cluster1).Create(t.Context(), work, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.applied(t, name)
}

// replace replaces the manifests of a ManifestWork.
func (f *fleet) replace(t *testing.T, name string, manifests ...string) {
	t.Helper()
	var raw []workv1.Manifest
	for _, manifest := range manifests {
		raw = append(raw, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(manifest)}})
	}
	patch := framework.Must(json.Marshal(map[string]any{"spec": map[string]any{"workload": map[string]any{"manifests": raw}}}))(t)
	if _, err := f.OCM.WorkV1().ManifestWorks(framework.Cluster1).Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	f.applied(t, name)
}

func (f *fleet) applied(t *testing.T, name string) {
	t.Helper()
	framework.Eventually(t, "ManifestWork "+name+" is applied", func(ctx context.Context) error {
		work, err := f.OCM.WorkV1().ManifestWorks(framework.Cluster1).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		applied := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
		if applied == nil || applied.Status != metav1.ConditionTrue || applied.ObservedGeneration != work.Generation {
			return fmt.Errorf("condition = %v for generation %d", applied, work.Generation)
		}
		return nil
	})
}

func (f *fleet) object(ctx context.Context, name string) (object, error) {
	found, err := f.ManagedClient.CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return object{}, err
	}
	return object{found.UID, found.ResourceVersion}, nil
}

func (f *fleet) objects(t *testing.T, names ...string) map[string]object {
	t.Helper()
	found := map[string]object{}
	for _, name := range names {
		found[name] = framework.Must(f.object(t.Context(), name))(t)
	}
	return found
}

func (f *fleet) unchanged(t *testing.T, when string, before map[string]object) {
	t.Helper()
	for name, want := range before {
		if got, err := f.object(t.Context(), name); err != nil || got != want {
			t.Errorf("ConfigMap %s %s = %v, %v, want %v", name, when, got, err, want)
		}
	}
}

func (f *fleet) gone(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		framework.Eventually(t, "ConfigMap "+name+" is deleted", func(ctx context.Context) error {
			_, err := f.object(ctx, name)
			return framework.IsGone(err)
		})
	}
}

// retains waits until the agent reports exactly these objects.
func (f *fleet) retains(t *testing.T, want ...string) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("the agent retains %v", want), func(ctx context.Context) error {
		cluster, err := f.OCM.ClusterV1().ManagedClusters().Get(ctx, framework.Cluster1, metav1.GetOptions{})
		if err != nil {
			return err
		}
		condition := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ManagedClusterConditionObjectsRetained)
		if condition == nil {
			return errors.New("no condition")
		}
		var got []string
		if condition.Status == metav1.ConditionTrue {
			for _, line := range strings.Split(condition.Message, "\n")[1:] {
				name, _, _ := strings.Cut(line, ":")
				got = append(got, name)
			}
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("retained = %v", got)
		}
		return nil
	})
}

// serviceAccount waits for the ServiceAccount of a ManagedServiceAccount and returns its UID.
func (f *fleet) serviceAccount(t *testing.T, name string) types.UID {
	t.Helper()
	if _, err := f.OCM.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1).Create(t.Context(), framework.NewAccount(framework.Cluster1, name), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	account, _ := f.AccountReported(t, framework.Cluster1, name)
	return account.Status.ServiceAccountRef.UID
}

func (f *fleet) accountUnchanged(t *testing.T, name string, want types.UID) {
	t.Helper()
	account, err := f.ManagedClient.CoreV1().ServiceAccounts(framework.AccountsNamespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || account.UID != want {
		t.Errorf("ServiceAccount %s = %v, %v, want UID %s", name, account, err, want)
	}
}

func (f *fleet) accountGone(t *testing.T, name string) {
	t.Helper()
	framework.Eventually(t, "ServiceAccount "+name+" is deleted", func(ctx context.Context) error {
		_, err := f.ManagedClient.CoreV1().ServiceAccounts(framework.AccountsNamespace).Get(ctx, name, metav1.GetOptions{})
		return framework.IsGone(err)
	})
}

// accepts sets whether the hub accepts a cluster without an agent, and waits for its access.
func (f *fleet) accepts(t *testing.T, name string, accepted bool) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"hubAcceptsClient":%t}}`, accepted)
	if _, err := f.OCM.ClusterV1().ManagedClusters().Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	f.hasAccess(t, name, accepted)
}

func (f *fleet) hasAccess(t *testing.T, name string, want bool) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("access of %s = %t", name, want), func(ctx context.Context) error { return f.access(ctx, name, want) })
}

// access returns an error unless a cluster has access to the hub, or no access if want is false.
func (f *fleet) access(ctx context.Context, name string, want bool) error {
	role, err := f.HubClient.RbacV1().ClusterRoles().Get(ctx, "open-cluster-management:managedcluster:"+name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && !want {
		return nil
	}
	if err == nil && (len(role.Rules) > 1) != want {
		err = fmt.Errorf("rules of %s = %v", name, role.Rules)
	}
	return err
}

// TestRestore restores a snapshot while an agent is connected. Objects that the snapshot does not contain stay
// until an administrator confirms; deletions after the restore take effect.
func TestRestore(t *testing.T) {
	t.Parallel()
	f := &fleet{framework.OwnFleet(t, localhub.FleetOptions{
		Clusters: []string{framework.Cluster1}, Join: localhub.JoinByRegistration,
		AgentArgs: []string{"--eviction-grace-period=0s"},
	}), &localhub.Clusteradm{}}

	f.create(t, "before")
	f.create(t, "grown")
	f.create(t, "shrinks", configMap("shrinks-more"))
	f.create(t, "removed")
	known := f.serviceAccount(t, "known")
	f.serviceAccount(t, "dropped")
	denied, deleted, kept := f.SilentCluster(t), f.SilentCluster(t), f.SilentCluster(t)
	for _, name := range []string{denied, deleted, kept} {
		f.hasAccess(t, name, true)
	}
	file := snapshotFile(t, "with-agent")
	framework.Must(save(t.Context(), dataDir(t, f.Fleet), file))(t)

	// The snapshot does not contain this.
	f.create(t, "after", configMap("after-more"))
	f.create(t, "wanted")
	f.replace(t, "grown", configMap("grown"), configMap("grown-more"))
	unknown := f.serviceAccount(t, "unknown")
	f.accepts(t, denied, false)
	if err := f.OCM.ClusterV1().ManagedClusters().Delete(t.Context(), deleted, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.hasAccess(t, deleted, false)
	before := f.objects(t, "before", "grown", "grown-more", "shrinks", "shrinks-more", "removed", "after", "after-more", "wanted")

	restore(t, f.Fleet, file)
	retained := []string{"managedserviceaccounts/unknown", "manifestworks/after", "manifestworks/grown"}
	f.retains(t, append(retained, "manifestworks/wanted")...)
	f.unchanged(t, "after the restore", before)
	f.accountUnchanged(t, "unknown", unknown)
	f.accountUnchanged(t, "known", known)
	f.revocationsHold(t, denied, deleted, kept)
	f.markStays(t)

	// A ManifestWork that is created again takes over its objects.
	f.create(t, "wanted")
	f.retains(t, retained...)
	// Deletions after the restore take effect.
	for _, name := range []string{"removed", "temporary"} {
		if name == "temporary" {
			f.create(t, name)
		}
		if err := f.OCM.WorkV1().ManifestWorks(framework.Cluster1).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	f.replace(t, "shrinks", configMap("shrinks"))
	if err := f.OCM.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1).Delete(t.Context(), "dropped", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.gone(t, "removed", "temporary", "shrinks-more")
	f.accountGone(t, "dropped")
	delete(before, "removed")
	delete(before, "shrinks-more")

	if err := f.Members[0].Agent.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.retains(t, retained...)
	f.unchanged(t, "after a restart of the agent", before)
	f.accountUnchanged(t, "unknown", unknown)

	list := framework.Must(f.adm.Run(t.Context(), f.Hub, "restore", "list"))(t)
	for _, object := range retained {
		if !strings.Contains(list, object) {
			t.Errorf("clusteradm restore list = %s, want %s", list, object)
		}
	}
	if report, err := f.adm.Run(t.Context(), f.Hub, "doctor", "hub"); err != nil || !strings.Contains(report, "clusteradm restore list") {
		t.Errorf("clusteradm doctor hub = %s, %v, want a finding with the remedy", report, err)
	}
	t.Log(framework.Must(f.adm.Run(t.Context(), f.Hub, "restore", "confirm", framework.Cluster1))(t))
	f.gone(t, "after", "after-more", "grown-more")
	f.accountGone(t, "unknown")
	f.retains(t)
	for _, name := range []string{"after", "after-more", "grown-more"} {
		delete(before, name)
	}
	f.unchanged(t, "after the confirmation", before)
	f.accountUnchanged(t, "known", known)
}

// revocationsHold checks that clusters that were denied or deleted after the snapshot do not get access again.
func (f *fleet) revocationsHold(t *testing.T, denied, deleted, kept string) {
	t.Helper()
	for name, want := range map[string]bool{denied: false, deleted: false, kept: true, framework.Cluster1: true} {
		cluster := framework.Must(f.OCM.ClusterV1().ManagedClusters().Get(t.Context(), name, metav1.GetOptions{}))(t)
		if cluster.Spec.HubAcceptsClient != want {
			t.Errorf("hubAcceptsClient of %s after the restore = %t, want %t", name, cluster.Spec.HubAcceptsClient, want)
		}
		if acceptance := cluster.Status.Acceptance; !want && (acceptance == nil || acceptance.Accepted || !strings.Contains(acceptance.Reason, "snapshot")) {
			t.Errorf("acceptance of %s after the restore = %+v, want a denial that names the snapshot", name, acceptance)
		}
		if want {
			f.hasAccess(t, name, true)
		}
	}
	// The hub gives access to a cluster that joins later.
	later := f.SilentCluster(t)
	await.Stays(t, "the revocation of access", func(ctx context.Context) error { return f.access(ctx, later, true) },
		func(ctx context.Context) error {
			return errors.Join(f.access(ctx, denied, false), f.access(ctx, deleted, false))
		})
}

// markStays checks that users cannot remove the mark, which would make the agent delete objects.
func (f *fleet) markStays(t *testing.T) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, clusterv1.RestoredAnnotation)
	cluster := framework.Must(f.OCM.ClusterV1().ManagedClusters().Patch(t.Context(), framework.Cluster1, types.MergePatchType, patch, metav1.PatchOptions{}))(t)
	if cluster.PendingRestore() == "" {
		t.Errorf("annotations after an attempt to remove the mark = %v, want the mark", cluster.Annotations)
	}
	added := framework.Must(f.OCM.ClusterV1().ManagedClusters().Get(t.Context(), f.SilentCluster(t), metav1.GetOptions{}))(t)
	if added.PendingRestore() != cluster.PendingRestore() {
		t.Errorf("mark of a new ManagedCluster = %q, want %q", added.PendingRestore(), cluster.PendingRestore())
	}
}

// TestRegisteredAfterTheSnapshot restores a snapshot without the cluster. Its agent changes nothing, also after the
// ManagedCluster is created again.
func TestRegisteredAfterTheSnapshot(t *testing.T) {
	t.Parallel()
	f := &fleet{framework.OwnFleet(t, localhub.FleetOptions{
		Clusters: []string{framework.Cluster1}, Join: localhub.JoinByRegistration,
		AgentArgs: []string{"--eviction-grace-period=0s"},
	}), &localhub.Clusteradm{}}
	f.create(t, "after")
	before := f.objects(t, "after")
	account := f.serviceAccount(t, "unknown")

	empty := framework.OwnDir(t) + "-empty"
	server := framework.Must(etcd.Start(t.Context(), etcd.Options{DataDir: empty, QuotaBytes: 64 << 20}))(t)
	t.Cleanup(server.Stop)
	file := snapshotFile(t, "empty")
	framework.Must(save(t.Context(), empty, file))(t)
	restore(t, f.Fleet, file)
	if _, err := f.OCM.ClusterV1().ManagedClusters().Get(t.Context(), framework.Cluster1, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("Get(%s) on the restored hub = %v, want NotFound", framework.Cluster1, err)
	}
	framework.Eventually(t, "the ManagedCluster is created again", func(ctx context.Context) error {
		_, err := f.OCM.ClusterV1().ManagedClusters().Create(ctx, &clusterv1.ManagedCluster{
			ObjectMeta: metav1.ObjectMeta{Name: framework.Cluster1}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
		}, metav1.CreateOptions{})
		return err
	})
	f.retains(t, "managedserviceaccounts/unknown", "manifestworks/after")
	f.unchanged(t, "after the cluster is known again", before)
	f.accountUnchanged(t, "unknown", account)
}
