package install

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// killAtStep runs clusteradm migrate, and kills it when it begins a step. It reports whether the step began.
func (h *ocmHub) killAtStep(t testing.TB, to string, step int) bool {
	t.Helper()
	path, err := localhub.Binary(localhub.BinDir(), "clusteradm")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), path, "migrate", "--to", to)
	command.Env = append(os.Environ(), "KUBECONFIG="+h.kubeconfig)
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	began := false
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 && strings.HasPrefix(fields[1], strconv.Itoa(step)+"/") {
			began = true
			break
		}
	}
	if err := command.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	_ = command.Wait()
	return began
}

// TestMigration moves a hub from the CustomResourceDefinitions of OCM to the server and back, and kills clusteradm at
// each step.
func TestMigration(t *testing.T) {
	t.Parallel()
	const clusters, count = 4, 12
	h := newOCMHub(t)
	h.fill(t, clusters, count)
	const onSpoke = (count + clusters - 1) / clusters
	applied := h.delivered(t, onSpoke*6)
	h.tokensReported(t, onSpoke)
	before, err := h.hubObjects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	addOn := h.addOn(t)

	h.run(t, "clusteradm", "init", "--before-migration", "--wait", "--csr-probe-timeout=0")
	h.ready(t, hubNamespace, 1)
	if role, err := h.kube.RbacV1().ClusterRoles().Get(t.Context(), "open-cluster-management:bootstrap", metav1.GetOptions{}); err != nil || !slices.Contains(role.Rules[0].Verbs, "list") {
		t.Errorf("ClusterRole of agents of OCM that join, after init = %v, %v, want the rules of OCM", role.Rules, err)
	}
	if _, err := h.kube.RbacV1().ClusterRoleBindings().Get(t.Context(), "open-cluster-management:bootstrap", metav1.GetOptions{}); err != nil {
		t.Errorf("ClusterRoleBinding of tokens of the server, after init = %v, want it", err)
	}
	h.refusesInvalid(t)
	t.Log(h.run(t, "clusteradm", "migrate", "--to", "server", "--dry-run"))

	stop := h.watchConsistency(t, before)
	for step := 1; h.killAtStep(t, "server", step); step++ {
		h.sameOnSpoke(t, applied)
	}
	h.run(t, "clusteradm", "migrate", "--to", "server")
	t.Logf("moved to the server, with %d consistent reads meanwhile", stop())
	h.sameOnSpoke(t, applied)

	if diff := cmp.Diff(addOn, h.addOn(t)); diff != "" {
		t.Errorf("ManagedClusterAddOn in the server (-want +got):\n%s", diff)
	}
	// The server works: it renders, the agent applies, and the account gets a token.
	h.create(t, "clusterpermissions", grant(migratedCluster, "late"))
	h.create(t, "managedserviceaccounts", account(migratedCluster, "late"))
	applied = h.grown(t, applied, 5)
	h.tokensReported(t, onSpoke+1)
	if replicas := h.replicasOf(t, "open-cluster-management", "cluster-permission"); replicas != 0 {
		t.Errorf("replicas of the controller of OCM = %d, want 0", replicas)
	}
	webhooks := h.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if config, err := webhooks.Get(t.Context(), "manifestworkvalidators", metav1.GetOptions{}); err != nil || len(config.Webhooks) != 1 || len(config.Webhooks[0].MatchConditions) != 1 {
		t.Errorf("Get(ValidatingWebhookConfiguration) in the server = %v, %v, want a suspended webhook", config, err)
	}
	token := h.secret(t, "late")
	hostile := h.hostileWorks(t)
	h.refusesTerminating(t)
	t.Log(h.run(t, "clusteradm", "migrate", "--to", "crds", "--dry-run"))

	stop = h.watchConsistency(t, before)
	for step := 1; h.killAtStep(t, "crds", step); step++ {
		h.sameOnSpoke(t, withoutVersions(applied, "late"))
	}
	h.run(t, "clusteradm", "migrate", "--to", "crds")
	t.Logf("moved back, with %d consistent reads meanwhile", stop())
	h.sameOnSpoke(t, withoutVersions(applied, "late"))
	if replicas := h.replicasOf(t, "open-cluster-management", "cluster-permission"); replicas != 2 {
		t.Errorf("replicas of the controller of OCM = %d, want 2", replicas)
	}
	h.callsWebhooks(t)
	if diff := cmp.Diff(addOn, h.addOn(t)); diff != "" {
		t.Errorf("ManagedClusterAddOn after the migration back (-want +got):\n%s", diff)
	}
	// OCM accepts a cluster without the annotation, if it accepts clusters automatically.
	if cluster, err := h.objects.Resource(resourceOf("managedclusters")).Get(t.Context(), deniedCluster, metav1.GetOptions{}); err != nil || cluster.GetAnnotations()["open-cluster-management.io/automatically-accepted-on"] == "" {
		t.Errorf("annotations of a denied cluster after the migration back = %v, %v, want the one that keeps OCM from accepting it", cluster.GetAnnotations(), err)
	}
	h.keepsNewObjects(t, token)
	h.keepsHostile(t, hostile)
	// The agent follows the CustomResourceDefinitions again.
	h.create(t, "manifestworks", work(migratedCluster, "late2"))
	h.grown(t, applied, 1)
	permission, err := h.objects.Resource(resourceOf("clusterpermissions")).Namespace(migratedCluster).Get(t.Context(), "late", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.objects.Resource(resourceOf("manifestworks")).Namespace(migratedCluster).Delete(t.Context(), "late-"+string(permission.GetUID())[:5], metav1.DeleteOptions{}); err != nil {
		t.Errorf("Delete(ManifestWork) with the name that the controller of OCM expects = %v, want none", err)
	}
	await.Eventually(t, "the agent removes the objects of the ClusterPermission", func(ctx context.Context) error {
		got, err := h.spokeObjects(ctx)
		for name := range got {
			if strings.Contains(name, "role") && strings.HasSuffix(name, "/late") {
				err = errors.Join(err, errors.New(name+" exists"))
			}
		}
		return err
	})

	// The other way again, without a way back.
	applied, err = h.spokeObjects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.run(t, "clusteradm", "init", "--before-migration", "--wait", "--csr-probe-timeout=0")
	deletions := h.watchDeletions(t)
	h.run(t, "clusteradm", "migrate", "--to", "server")
	if before, err = h.hubObjects(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The command waits for watches of all API servers.
	h.limit = 3*time.Minute + await.Patience
	h.run(t, "clusteradm", "migrate", "--to", "server", "--delete-crds")
	// The garbage collector would delete the dependents of such objects.
	if deleted := deletions(); len(deleted) > 0 {
		t.Errorf("objects that a watch of the CustomResourceDefinitions reports as deleted = %v, want none", deleted)
	}
	h.create(t, "manifestworks", work(migratedCluster, "late3"))
	// The server also delivers the ClusterPermission again, whose ManifestWork was deleted.
	h.grown(t, applied, 5)
	after, err := h.hubObjects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if missing := lost(before, after); len(missing) > 0 {
		t.Errorf("objects on the hub after the CustomResourceDefinitions are deleted: %s", strings.Join(missing, "; "))
	}
}

// refusesInvalid checks that a dry run reports an object that the server refuses, and changes nothing.
func (h *ocmHub) refusesInvalid(t testing.TB) {
	t.Helper()
	invalid := account(migratedCluster, "invalid")
	invalid["spec"] = map[string]any{"rotation": map[string]any{"enabled": true, "validity": "1s"}}
	h.create(t, "managedserviceaccounts", invalid)
	for _, args := range [][]string{{"--dry-run"}, nil} {
		out, err := h.try(t, "clusteradm", append([]string{"migrate", "--to", "server"}, args...)...)
		if err == nil || !strings.Contains(out, "invalid in cluster1") || !strings.Contains(out, "spec.rotation.validity") {
			t.Errorf("clusteradm migrate --to server %q = %v, want an error with the path of the field:\n%s", args, err, out)
		}
	}
	if err := h.objects.Resource(resourceOf("managedserviceaccounts")).Namespace(migratedCluster).Delete(t.Context(), "invalid", metav1.DeleteOptions{}); err != nil {
		t.Errorf("Delete() after a refused migration = %v, want none", err)
	}
	if replicas := h.replicasOf(t, "open-cluster-management", "cluster-permission"); replicas != 2 {
		t.Errorf("replicas of the controller of OCM after a refused migration = %d, want 2", replicas)
	}
}

// callsWebhooks checks that the webhook of OCM is called after a migration back, and then removes it, because it has no Pods.
func (h *ocmHub) callsWebhooks(t testing.TB) {
	t.Helper()
	webhooks := h.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if config, err := webhooks.Get(t.Context(), "manifestworkvalidators", metav1.GetOptions{}); err != nil || len(config.Webhooks) != 1 || len(config.Webhooks[0].MatchConditions) > 0 {
		t.Errorf("Get(ValidatingWebhookConfiguration) after the migration back = %v, %v, want a webhook that is not suspended", config, err)
	}
	probe := func(ctx context.Context) error {
		_, err := h.createObject(ctx, "manifestworks", work(migratedCluster, "probe"))
		if err == nil {
			err = h.objects.Resource(resourceOf("manifestworks")).Namespace(migratedCluster).Delete(ctx, "probe", metav1.DeleteOptions{})
		}
		return err
	}
	await.Eventually(t, "the hub calls the webhook of OCM", func(ctx context.Context) error {
		if err := probe(ctx); err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
			return fmt.Errorf("Create(ManifestWork) = %w, want an error of the webhook", err)
		}
		return nil
	})
	if err := webhooks.Delete(t.Context(), "manifestworkvalidators", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.Eventually(t, "the hub does not call the webhook", probe)
}

// keepsNewObjects checks the account and its token that were created in the server.
func (h *ocmHub) keepsNewObjects(t testing.TB, token *corev1.Secret) {
	t.Helper()
	late, err := h.objects.Resource(resourceOf("managedserviceaccounts")).Namespace(migratedCluster).Get(t.Context(), "late", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret := h.secret(t, "late")
	if secret.UID != token.UID || string(secret.Data["token"]) != string(token.Data["token"]) {
		t.Errorf("Secret of the account = UID %s, want the one from before, UID %s, with the same token", secret.UID, token.UID)
	}
	if len(secret.OwnerReferences) != 1 || secret.OwnerReferences[0].UID != late.GetUID() {
		t.Errorf("owners of the Secret = %v, want the account with UID %s", secret.OwnerReferences, late.GetUID())
	}
}

// refusesTerminating checks that a migration back names an object that its CustomResourceDefinition refuses, before it refuses
// writes or stops anything.
func (h *ocmHub) refusesTerminating(t testing.TB) {
	t.Helper()
	const namespace = "terminating"
	if _, err := h.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	object := work(namespace, "stays")
	object["metadata"].(map[string]any)["finalizers"] = []any{"example.com/stays"}
	h.create(t, "manifestworks", object)
	if err := h.kube.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	out, err := h.try(t, "clusteradm", "migrate", "--to", "crds")
	if err == nil || !strings.Contains(out, "stays in "+namespace+": ") || strings.Contains(out, "refuse writes") {
		t.Errorf("clusteradm migrate --to crds with an object in a terminating namespace = %v, want an error that names it, before writes are refused:\n%s", err, out)
	}
	if replicas := h.replicasOf(t, hubNamespace, "hub-apiserver"); replicas != 1 {
		t.Errorf("replicas of the server after a refused migration = %d, want 1", replicas)
	}
	// Writes are accepted.
	works := h.objects.Resource(resourceOf("manifestworks")).Namespace(namespace)
	if _, err := works.Patch(t.Context(), "stays", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("Patch() after a refused migration = %v, want none", err)
	}
	await.Eventually(t, "the object is gone", func(ctx context.Context) error {
		if _, err := works.Get(ctx, "stays", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("Get() = %w", err)
		}
		return nil
	})
}

// hostileWorks creates ManifestWorks that tenants may create, and that would end a migration or make it replace others. It
// returns their names.
func (h *ocmHub) hostileWorks(t testing.TB) []string {
	t.Helper()
	annotate := func(name string, annotations map[string]any) {
		object := work(migratedCluster, name)
		object["metadata"].(map[string]any)["annotations"] = annotations
		h.create(t, "manifestworks", object)
	}
	annotate("pinned", map[string]any{"migration.open-cluster-management.io/successor": "nothing"})
	annotate("owned", map[string]any{"migration.open-cluster-management.io/owner": "x"})
	annotate("replaced", map[string]any{"migration.open-cluster-management.io/successor": "other"})
	annotate("other", nil)
	// The first ManifestWork of the hub, to which no annotation can be added.
	full := map[string]any{}
	for i := range 256 {
		full[fmt.Sprintf("example.com/%d", i)] = ""
	}
	annotate("a-full", full)
	permission, err := h.objects.Resource(resourceOf("clusterpermissions")).Namespace(migratedCluster).Get(t.Context(), "late", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	object := work(migratedCluster, "claim")
	object["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{
		"apiVersion": permission.GetAPIVersion(), "kind": permission.GetKind(), "name": permission.GetName(), "uid": string(permission.GetUID()), "controller": true,
	}}
	h.create(t, "manifestworks", object)
	return []string{"pinned", "owned", "replaced", "other", "a-full", "claim"}
}

// keepsHostile checks that a migration has neither changed nor deleted ManifestWorks.
func (h *ocmHub) keepsHostile(t testing.TB, names []string) {
	t.Helper()
	for _, name := range names {
		got, err := h.objects.Resource(resourceOf("manifestworks")).Namespace(migratedCluster).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Errorf("Get(ManifestWork %s) after the migration = %v, want none", name, err)
			continue
		}
		if option, found, _ := unstructured.NestedMap(got.Object, "spec", "deleteOption"); found || got.GetDeletionTimestamp() != nil {
			t.Errorf("ManifestWork %s after the migration = deleteOption %v, deleted at %v, want neither", name, option, got.GetDeletionTimestamp())
		}
	}
	records, err := h.kube.CoreV1().ConfigMaps(hubNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range records.Items {
		if strings.HasPrefix(record.Name, "hub-apiserver-migration-successors") {
			t.Errorf("ConfigMap %s after the migration = %v, want none", record.Name, record.Data)
		}
	}
}

// BenchmarkMigration measures a migration to the server and back: 100 clusters, 1,000 ClusterPermissions, 1,000 accounts
// and 2,000 ManifestWorks.
func BenchmarkMigration(b *testing.B) {
	const clusters, count = 100, 1000
	h := newOCMHub(b)
	// A loaded machine must show in the figures, and not end the measurement.
	h.limit = 15 * time.Minute
	h.fill(b, clusters, count)
	applied := h.delivered(b, count/clusters*6)
	h.tokensReported(b, count/clusters)
	before, err := h.hubObjects(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	h.run(b, "clusteradm", "init", "--before-migration", "--wait", "--csr-probe-timeout=0")
	for _, to := range []string{"server", "crds"} {
		begin := time.Now()
		h.run(b, "clusteradm", "migrate", "--to", to, "--dry-run")
		b.ReportMetric(time.Since(begin).Seconds(), "s-dry-run-to-"+to)
		stop := h.watchConsistency(b, before)
		begin = time.Now()
		out := h.run(b, "clusteradm", "migrate", "--to", to)
		b.ReportMetric(time.Since(begin).Seconds(), "s-to-"+to)
		b.Logf("%d consistent reads during\n%s", stop(), out)
		h.sameOnSpoke(b, applied)
	}
}

// sameOnSpoke fails if an object on the managed cluster was touched.
func (h *ocmHub) sameOnSpoke(t testing.TB, want map[string]identity) {
	t.Helper()
	got, err := h.spokeObjects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name := range want {
		if found := got[name]; want[name].version == "" {
			got[name] = identity{uid: found.uid}
		}
	}
	if touched := lost(want, got); len(touched) > 0 {
		t.Fatalf("objects on the managed cluster: %s", strings.Join(touched, "; "))
	}
}

// withoutVersions returns objects, of which those whose name begins with a prefix may have another version.
func withoutVersions(objects map[string]identity, prefix string) map[string]identity {
	out := maps.Clone(objects)
	for name := range out {
		if strings.Contains(name, "/"+prefix) {
			out[name] = identity{uid: out[name].uid}
		}
	}
	return out
}

// grown waits until the managed cluster has more objects, and checks that the others are the same.
func (h *ocmHub) grown(t testing.TB, before map[string]identity, more int) map[string]identity {
	t.Helper()
	after := h.delivered(t, len(before)+more)
	h.sameOnSpoke(t, withoutVersions(before, "late"))
	return after
}
