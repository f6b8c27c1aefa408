package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	hubNamespace   = "open-cluster-management-hub"
	agentNamespace = "open-cluster-management-agent"
	storageClass   = "local"
)

// site is a cluster with a node, and the clients of its administrator.
type site struct {
	*Cluster
	kube       kubernetes.Interface
	ocm        versioned.Interface
	kubeconfig string
}

// startSites starts clusters in one network, at the same time. It skips the test on a machine that cannot run nodes.
func startSites(t *testing.T, names ...string) []*site {
	t.Helper()
	if err := Missing(); err != nil {
		t.Skip("NOT TESTED: real nodes (test/node), because", err)
	}
	framework.UseSlots(t, len(names))
	network, err := NewNetwork()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	begin := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	sites, errs := make([]*site, len(names)), make([]error, len(names))
	var starts sync.WaitGroup
	for i, name := range names {
		dir := t.TempDir()
		starts.Go(func() { sites[i], errs[i] = startSite(ctx, network, name, dir) })
	}
	starts.Wait()
	for _, s := range sites {
		if s != nil {
			t.Cleanup(func() { s.end(t) })
		}
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d clusters with nodes started in %s", len(names), time.Since(begin).Round(100*time.Millisecond))
	return sites
}

func startSite(ctx context.Context, network *Network, name, dir string) (*site, error) {
	cluster, err := network.StartCluster(ctx, dir, localhub.ClusterOptions{Name: name, NoFsync: true})
	if err != nil {
		return nil, err
	}
	s := &site{Cluster: cluster, kubeconfig: filepath.Join(dir, "admin.kubeconfig")}
	if err = s.WriteAdminKubeconfig(s.kubeconfig); err == nil {
		s.kube, err = kubernetes.NewForConfig(s.AdminConfig())
	}
	if err == nil {
		s.ocm, err = versioned.NewForConfig(s.AdminConfig())
	}
	if err != nil {
		return nil, errors.Join(err, cluster.Kill())
	}
	return s, nil
}

// end stops a site, and prints the ends of its logs if the test has failed.
func (s *site) end(t *testing.T) {
	if err := s.Kill(); err != nil {
		t.Error(err)
	}
	if !t.Failed() {
		return
	}
	for _, process := range s.Processes() {
		t.Log(process.Name, process.LogTail())
	}
	logs, _ := filepath.Glob(filepath.Join(s.Node.dir, "var/log/pods/*/*/*.log"))
	for _, log := range logs {
		content, _ := os.ReadFile(log)
		t.Logf("%s of %s ends:\n%s", log, s.Name, content[max(0, len(content)-3000):])
	}
}

// run runs a program of this machine as the administrator, and returns its output.
func (s *site) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	out, err := s.command(ctx, t, name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (s *site) command(ctx context.Context, t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	command := exec.CommandContext(ctx, program(t, name), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig, "KUBECACHEDIR="+filepath.Join(s.Node.dir, "cache"), "KUBERC=off")
	return command
}

// program returns the path of a program that this project builds.
func program(t *testing.T, name string) string {
	t.Helper()
	return framework.Must(localhub.Binary(localhub.BinDir(), name))(t)
}

// load imports images on the node.
func (s *site) load(t *testing.T, images ...Image) {
	t.Helper()
	if err := s.Node.Import(t.Context(), images...); err != nil {
		t.Fatal(err)
	}
}

// createStorageClass creates the default StorageClass, whose volumes addVolume creates.
func (s *site) createStorageClass(t *testing.T) {
	t.Helper()
	class := &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: storageClass, Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner:       "kubernetes.io/no-provisioner",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}
	if _, err := s.kube.StorageV1().StorageClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// addVolume creates a volume in a directory of the node.
func (s *site) addVolume(t *testing.T, name string) {
	t.Helper()
	path := filepath.Join(s.Node.dir, "volumes", name)
	if err := os.MkdirAll(path, 0o755); err != nil { //nolint:gosec // as an administrator does
		t.Fatal(err)
	}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")},
		AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		StorageClassName:              storageClass,
		PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{s.Node.Name}}},
		}}}},
	}}
	if _, err := s.kube.CoreV1().PersistentVolumes().Create(t.Context(), volume, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// server waits until one Pod of the server exists and is ready, with another container than before, and returns it.
func (s *site) server(t *testing.T, before string) (pod *corev1.Pod) {
	t.Helper()
	await.Eventually(t, "another container of the server is ready", func(ctx context.Context) error {
		list, err := s.kube.CoreV1().Pods(hubNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app=hub-apiserver"})
		if err != nil {
			return err
		}
		if len(list.Items) != 1 {
			return fmt.Errorf("Pods = %d, want 1", len(list.Items))
		}
		pod = &list.Items[0]
		statuses := pod.Status.ContainerStatuses
		if len(statuses) != 1 || !statuses[0].Ready || statuses[0].ContainerID == before {
			return fmt.Errorf("containers of the Pod %s = %v, want a ready one that is not %q", pod.Name, statuses, before)
		}
		return nil
	})
	return pod
}

// report prints a figure, and the load of the machine: on a busy one, the programs of the node take part of the time.
func report(t *testing.T, what string, took, bar time.Duration) {
	t.Helper()
	load, _ := os.ReadFile("/proc/loadavg")
	t.Logf("FIGURE %s: %.1f s (at most %s wanted; load average %s)", what, took.Seconds(), bar, strings.TrimSpace(string(load)))
}
