package rehoming_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/rehoming"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	cluster1, cluster2 = "cluster1", "cluster2"
	agentNamespace     = localhub.AgentNamespace
	identitySecret     = "hub-kubeconfig-secret"
	standbySecret      = "standby-hub-kubeconfig"
)

// auditWrites logs the writes of ConfigMaps with their content, and which Secrets of the agent are written.
const auditWrites = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Request
    verbs: [create, update, patch, delete, deletecollection]
    resources: [{group: "", resources: [configmaps]}, {group: apps, resources: [deployments]}]
    namespaces: [default]
  - level: Request
    verbs: [create, update, patch]
    resources: [{group: "", resources: [secrets]}]
    namespaces: [` + agentNamespace + `]
  - level: None
`

// adm runs clusteradm.
var adm = &localhub.Clusteradm{}

// hub is one of the hubs.
type hub struct {
	*framework.Fleet
	invitation *localhub.Invitation
}

// startHub starts a hub with managed clusters that join it, or a standby hub without.
func startHub(t *testing.T, name string, clusters ...string) *hub {
	t.Helper()
	var args []string
	if len(clusters) == 0 {
		args = []string{"--standby"}
	}
	h := &hub{Fleet: framework.Must(framework.StartFleet(t.Context(), localhub.FleetOptions{
		Dir: filepath.Join(framework.OwnDir(t), name), Clusters: clusters, Join: localhub.JoinByRegistration, InitArgs: args, NoFsync: true, ManagedAuditPolicy: auditWrites,
	}))(t)}
	framework.KillLater(t, h.Kill)
	h.invitation = framework.Must(h.Invite(t.Context()))(t)
	return h
}

// kill kills all processes of a hub.
func (h *hub) kill(t *testing.T) {
	t.Helper()
	for _, process := range append(h.Hub.Processes(), h.Server.Process) {
		if err := process.Kill(); err != nil {
			t.Fatal(err)
		}
	}
}

// clusteradm runs a command on the hub, which must succeed.
func (h *hub) clusteradm(t *testing.T, args ...string) string {
	t.Helper()
	return framework.Must(adm.Run(t.Context(), h.Hub, args...))(t)
}

// backedBy makes another hub the standby hub of the real clusters.
func (h *hub) backedBy(t *testing.T, other *hub, clusters []*member) {
	t.Helper()
	h.clusteradm(t, "hub", "standby", "--clusters", cluster1+","+cluster2, "--hub-token", other.invitation.Token, "--hub-apiserver", other.invitation.Server, "--ca-data", base64.StdEncoding.EncodeToString(other.invitation.CA))
	for _, c := range clusters {
		framework.Eventually(t, c.Name+" knows the standby hub", func(ctx context.Context) error {
			secret, err := c.client.CoreV1().Secrets(agentNamespace).Get(ctx, standbySecret, metav1.GetOptions{})
			if err == nil && !strings.Contains(string(secret.Data["kubeconfig"]), other.invitation.Server) {
				err = fmt.Errorf("Secret %s names another hub", standbySecret)
			}
			return err
		})
	}
}

// export exports the hub after all of its clusters have reported a key.
func (h *hub) export(t *testing.T) string {
	t.Helper()
	framework.Eventually(t, "all clusters have reported a key", func(ctx context.Context) error {
		clusters, err := h.OCM.ClusterV1().ManagedClusters().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, cluster := range clusters.Items {
			if !slices.ContainsFunc(cluster.Status.ClusterClaims, func(claim clusterv1.ManagedClusterClaim) bool { return claim.Name == rehoming.KeyClaim }) {
				return fmt.Errorf("%s has no claim %s", cluster.Name, rehoming.KeyClaim)
			}
		}
		return nil
	})
	path := filepath.Join(t.TempDir(), "hub.gz")
	h.clusteradm(t, "hub", "export", path)
	if info := framework.Must(os.Stat(path))(t); info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the export = %o, want 600", info.Mode().Perm())
	}
	return path
}

// stepLine is the line that clusteradm prints at the beginning of a step.
var stepLine = regexp.MustCompile(`^ *[0-9.]+s  \d+/\d+  (.+)$`)

// adoptUntil runs clusteradm hub adopt, and kills it when it begins a step that is not in begun. It returns the name of the
// step, or an empty string if the command ended, and its output.
func (h *hub) adoptUntil(t *testing.T, begun sets.Set[string], file string) (string, string) {
	t.Helper()
	path := framework.Must(localhub.Binary(localhub.BinDir(), "clusteradm"))(t)
	command := exec.CommandContext(t.Context(), path, "hub", "adopt", file)
	command.Env = append(os.Environ(), "KUBECONFIG="+h.Kubeconfig)
	reader, writer := io.Pipe()
	command.Stdout, command.Stderr = writer, writer
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	finished := make(chan error, 1)
	go func() {
		err := command.Wait()
		_ = writer.Close()
		finished <- err
	}()
	var output strings.Builder
	killed := ""
	lines := bufio.NewScanner(reader)
	for lines.Scan() {
		output.WriteString(lines.Text() + "\n")
		if found := stepLine.FindStringSubmatch(lines.Text()); killed == "" && found != nil && !begun.Has(found[1]) {
			killed = found[1]
			if err := command.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Fatal(err)
			}
		}
	}
	if err := <-finished; err != nil && killed == "" {
		t.Fatalf("clusteradm hub adopt: %v\n%s", err, output.String())
	}
	return killed, output.String()
}

// member is a real managed cluster.
type member struct {
	*localhub.Member
	client *kubernetes.Clientset
	// audited is the end of the audit log that was read.
	audited int64
}

func membersOf(t *testing.T, h *hub) []*member {
	t.Helper()
	var members []*member
	for _, m := range h.Members {
		members = append(members, &member{Member: m, client: framework.Must(kubernetes.NewForConfig(m.AdminConfig()))(t)})
	}
	return members
}

// marker is the ConfigMap of a ManifestWork that shows which hub writes to a cluster.
const marker = "marker"

// markerWork returns a ManifestWork that writes a value into the marker.
func markerWork(cluster, value string) *workv1.ManifestWork {
	return work(cluster, marker, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"default"},"data":{"hub":%q}}`, marker, value))
}

func work(cluster, name string, manifests ...string) *workv1.ManifestWork {
	w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
	for _, manifest := range manifests {
		w.Spec.Workload.Manifests = append(w.Spec.Workload.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(manifest)}})
	}
	return w
}

// appWork returns a ManifestWork with the objects of an application.
func appWork(cluster, name string) *workv1.ManifestWork {
	return work(cluster, name,
		fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"default"},"data":{"key":"value"}}`, name),
		fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%[1]q,"namespace":"default"},"spec":{"replicas":0,"selector":{"matchLabels":{"app":%[1]q}},"template":{"metadata":{"labels":{"app":%[1]q}},"spec":{"containers":[{"name":"app","image":"app:v1"}]}}}}`, name))
}

// mark writes a value into the marker of a cluster, by a ManifestWork on this hub.
func (h *hub) mark(ctx context.Context, cluster, value string) error {
	works := h.OCM.WorkV1().ManifestWorks(cluster)
	current, err := works.Get(ctx, marker, metav1.GetOptions{})
	if err != nil {
		return err
	}
	current.Spec = markerWork(cluster, value).Spec
	_, err = works.Update(ctx, current, metav1.UpdateOptions{})
	return err
}

// commands writes a value by a ManifestWork on this hub into all clusters, and waits until they have it.
func (h *hub) commands(t *testing.T, members []*member, value string) {
	t.Helper()
	for _, m := range members {
		framework.Eventually(t, "the ManifestWork of "+m.Name+" is changed", func(ctx context.Context) error { return h.mark(ctx, m.Name, value) })
	}
	for _, m := range members {
		framework.Eventually(t, m.Name+" obeys the hub", func(ctx context.Context) error { return m.has(ctx, value) })
	}
}

// has returns nil if the marker of the cluster has a value.
func (m *member) has(ctx context.Context, value string) error {
	object, err := m.client.CoreV1().ConfigMaps("default").Get(ctx, marker, metav1.GetOptions{})
	if err == nil && object.Data["hub"] != value {
		err = fmt.Errorf("the marker of %s = %q, want %q", m.Name, object.Data["hub"], value)
	}
	return err
}

// objects returns the UIDs and versions of the objects of applications.
func (m *member) objects(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, object := range framework.Must(m.client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}))(t).Items {
		if strings.HasPrefix(object.Name, "app-") {
			found["ConfigMap "+object.Name] = string(object.UID) + " " + object.ResourceVersion
		}
	}
	for _, object := range framework.Must(m.client.AppsV1().Deployments("default").List(t.Context(), metav1.ListOptions{}))(t).Items {
		found["Deployment "+object.Name] = string(object.UID) + " " + specVersion(&object)
	}
	for _, object := range framework.Must(m.client.RbacV1().RoleBindings("default").List(t.Context(), metav1.ListOptions{}))(t).Items {
		found["RoleBinding "+object.Name] = string(object.UID) + " " + object.ResourceVersion
	}
	return found
}

// specVersion returns what changes if an agent writes a Deployment. Its controller writes the status.
func specVersion(d *appsv1.Deployment) string {
	var times []string
	for _, entry := range d.ManagedFields {
		if entry.Subresource == "" && entry.Time != nil {
			times = append(times, entry.Time.String())
		}
	}
	return fmt.Sprint(d.Generation, times)
}

// secretData returns a value in the Secret with the identity of the cluster.
func (m *member) secretData(ctx context.Context, key string) (string, error) {
	secret, err := m.client.CoreV1().Secrets(agentNamespace).Get(ctx, identitySecret, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return string(secret.Data[key]), nil
}

// movedTo returns nil if the agent of a cluster works for a hub: it has its own certificate there, and reports its status.
func (h *hub) movedTo(ctx context.Context, name string) error {
	registration, err := h.OCM.RegisterV1alpha1().ManagedClusterRegistrations().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if registration.Status.CSR == nil || len(registration.Status.CSR.Agents) == 0 {
		return fmt.Errorf("%s has no certificate", name)
	}
	lease, err := h.HubClient.CoordinationV1().Leases(name).Get(ctx, "managed-cluster-lease", metav1.GetOptions{})
	if err != nil {
		return err
	}
	// The server creates the Lease without a holder.
	if holder := lease.Spec.HolderIdentity; holder == nil || *holder != registration.Status.CSR.Agents[len(registration.Status.CSR.Agents)-1] {
		return fmt.Errorf("the agent of %s has not renewed its Lease", name)
	}
	cluster, err := h.OCM.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if !meta.IsStatusConditionTrue(cluster.Status.Conditions, clusterv1.ManagedClusterConditionAvailable) {
		return fmt.Errorf("%s is not available", name)
	}
	return nil
}

// audit returns the events of the managed cluster that were not read yet.
func (m *member) audit(t *testing.T) []auditv1.Event {
	t.Helper()
	events, end, err := localhub.ReadAudit(m.AuditLog(), m.audited)
	if err != nil {
		t.Fatal(err)
	}
	m.audited = end
	return events
}

// obeysOther checks that no event after the one that raised the epoch to this number writes a value that only the former
// hub has.
func obeysOther(t *testing.T, name string, events []auditv1.Event, epoch int64, former string) {
	t.Helper()
	raised, writes := false, 0
	for _, event := range events {
		if event.ObjectRef == nil || event.RequestObject == nil {
			continue
		}
		switch event.ObjectRef.Resource {
		case "secrets":
			var secret corev1.Secret
			if event.ObjectRef.Name != identitySecret || json.Unmarshal(event.RequestObject.Raw, &secret) != nil {
				continue
			}
			stored, err := rehoming.ParseEpoch(string(secret.Data["hub-epoch"]))
			if raised = raised || err == nil && stored.Number >= epoch; raised && stored.Number < epoch {
				t.Errorf("Secret of %s after the epoch was raised = epoch %d, want at least %d", name, stored.Number, epoch)
			}
		case "configmaps":
			var object corev1.ConfigMap
			if !raised || event.ObjectRef.Name != marker || json.Unmarshal(event.RequestObject.Raw, &object) != nil || object.Data["hub"] == "" {
				continue
			}
			if writes++; strings.HasPrefix(object.Data["hub"], former) {
				t.Errorf("write to %s after the epoch was raised = %q at %s, want none of the former hub", name, object.Data["hub"], event.StageTimestamp)
			}
		}
	}
	if !raised || writes == 0 {
		t.Errorf("audit log of %s = raised %t, %d writes of the marker, want both", name, raised, writes)
	}
}
