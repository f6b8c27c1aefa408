package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/kubelet"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	// patience bounds each wait.
	patience     = 2 * time.Minute
	hubNamespace = "open-cluster-management-hub"
	serverName   = "hub-apiserver"
)

func TestMain(m *testing.M) {
	kubelet.Main()
	os.Exit(m.Run())
}

// site is a cluster whose Pods run.
type site struct {
	*localhub.Cluster
	dir        string
	kubeconfig string
	kube       kubernetes.Interface
	ocm        versioned.Interface
}

// newSite starts a cluster. outside are ports of this machine that its Pods may connect to, in addition
// to that of its kube-apiserver.
func newSite(t *testing.T, name string, outside map[int]string) *site {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("running containers requires root")
	}
	dir := t.TempDir()
	program := func(name string) string {
		path, err := localhub.Binary(localhub.BinDir(), name)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	ports := maps.Clone(outside)
	if ports == nil {
		ports = map[int]string{}
	}
	pods, err := kubelet.New(kubelet.Options{
		Dir: dir, Outside: ports, Names: []string{"etcd." + hubNamespace + ".svc"},
		Images: map[string]kubelet.Image{
			"hub-apiserver:latest":       {Program: program("apiserver"), Path: "/apiserver"},
			"hub-apiserver-agent:latest": {Program: program("agent"), Path: "/agent"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := localhub.NewCluster(localhub.ClusterOptions{
		Name: name, Dir: filepath.Join(dir, "cluster"), NoFsync: true, APIServerArgs: pods.APIServerArgs(),
		Controllers: []string{"deployment-controller", "replicaset-controller", "endpointslice-controller"},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{Cluster: cluster, dir: dir, kubeconfig: filepath.Join(dir, "kubeconfig")}
	own := portOf(t, s)
	ports[own] = net.JoinHostPort("127.0.0.1", strconv.Itoa(own))
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(func() {
		stop()
		background, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := cluster.Stop(background); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			logs, _ := filepath.Glob(filepath.Join(dir, "*.log"))
			for _, log := range logs {
				content, _ := os.ReadFile(log)
				t.Logf("%s ends:\n%s", filepath.Base(log), content[max(0, len(content)-4000):])
			}
		}
	})
	starting, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := cluster.Start(starting); err != nil {
		t.Fatal(err)
	}
	if err := cluster.WriteAdminKubeconfig(s.kubeconfig); err != nil {
		t.Fatal(err)
	}
	if s.kube, err = kubernetes.NewForConfig(cluster.AdminConfig()); err != nil {
		t.Fatal(err)
	}
	if s.ocm, err = versioned.NewForConfig(cluster.AdminConfig()); err != nil {
		t.Fatal(err)
	}
	running := make(chan error, 1)
	go func() { running <- pods.Run(ctx, cluster.AdminConfig()) }()
	// Before the cluster stops, because cleanups run in reverse order.
	t.Cleanup(func() {
		stop()
		if err := <-running; err != nil {
			t.Error(err)
		}
	})
	return s
}

// portOf returns the port of the kube-apiserver of a site.
func portOf(t *testing.T, s *site) int {
	t.Helper()
	address, err := url.Parse(s.AdminConfig().Host)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(address.Port())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// run runs a command on a site as its administrator.
func (s *site) run(t *testing.T, program string, args ...string) string {
	t.Helper()
	path, err := localhub.Binary(localhub.BinDir(), program)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, path, args...)
	command.Dir = localhub.Root()
	command.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig, "KUBECACHEDIR="+filepath.Join(s.dir, "cache"), "KUBERC=off")
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// replacePod deletes the Pod of a namespace, and waits until a new one is ready and serves all APIs.
func (s *site) replacePod(t *testing.T, namespace string) {
	t.Helper()
	pods := s.kube.CoreV1().Pods(namespace)
	before, err := pods.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(before.Items) != 1 {
		t.Fatalf("Pods in %s = %d, want 1", namespace, len(before.Items))
	}
	begin := time.Now()
	if err := pods.Delete(t.Context(), before.Items[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new Pod in "+namespace+" is ready", func(ctx context.Context) error {
		now, err := pods.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(now.Items) != 1 || now.Items[0].UID == before.Items[0].UID {
			return fmt.Errorf("Pods = %d, want only the new one", len(now.Items))
		}
		if !slices.ContainsFunc(now.Items[0].Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) {
			return errors.New("the new Pod is not ready")
		}
		_, err = s.kube.Discovery().ServerPreferredResources()
		return err
	})
	t.Logf("Pod in %s replaced after %s", namespace, time.Since(begin).Round(100*time.Millisecond))
}

func bindsOnCall(binding rbacv1.ClusterRoleBinding) bool {
	return slices.ContainsFunc(binding.Subjects, func(subject rbacv1.Subject) bool { return subject.Name == "on-call" })
}

func eventually(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	var last error
	if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	}); err != nil {
		t.Fatalf("waiting until %s: %v: %v", what, err, last)
	}
}

// TestInstall installs a hub and a managed cluster with clusteradm, as README describes, until the managed
// cluster has the first ClusterPermission. All containers run as in the manifests.
func TestInstall(t *testing.T) {
	hub := newSite(t, "hub", nil)
	hubPort := portOf(t, hub)
	managed := newSite(t, "managed", map[int]string{hubPort: net.JoinHostPort("127.0.0.1", strconv.Itoa(hubPort))})

	begin := time.Now()
	out := hub.run(t, "clusteradm", "init", "--wait")
	_, command, ok := strings.Cut(out, "clusteradm join \\\n")
	if !ok {
		t.Fatalf("clusteradm init printed\n%s\nwant a join command", out)
	}
	command, _, _ = strings.Cut(command, "\n\n")
	args := append([]string{"join", "--wait"}, strings.Fields(strings.ReplaceAll(command, "\\\n", " "))...)
	for i := range args {
		if args[i] == "--cluster-name" {
			args[i+1] = "cluster1"
		}
	}
	managed.run(t, "clusteradm", args...)
	hub.run(t, "clusteradm", "accept", "--clusters", "cluster1", "--wait")
	hub.run(t, "kubectl", "apply", "-f", "artifacts/example/clusterpermission.yaml")
	eventually(t, "the managed cluster has the ClusterRole", func(ctx context.Context) error {
		bindings, err := managed.kube.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
		if err == nil && !slices.ContainsFunc(bindings.Items, bindsOnCall) {
			err = fmt.Errorf("none of %d ClusterRoleBindings is that of on-call", len(bindings.Items))
		}
		return err
	})
	t.Logf("from init to the first ClusterPermission on the managed cluster: %s", time.Since(begin).Round(100*time.Millisecond))

	// The data of the server outlive its Pod, and the agent its restart.
	hub.replacePod(t, hubNamespace)
	managed.replacePod(t, "open-cluster-management-agent")
	if _, err := hub.ocm.RbacV1alpha1().ClusterPermissions("cluster1").Get(t.Context(), "on-call", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	hub.run(t, "kubectl", "delete", "-f", "artifacts/example/clusterpermission.yaml")
	eventually(t, "the new agent removes the ClusterPermission", func(ctx context.Context) error {
		bindings, err := managed.kube.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
		if err == nil && slices.ContainsFunc(bindings.Items, bindsOnCall) {
			err = errors.New("the ClusterRoleBinding of on-call exists")
		}
		return err
	})

	managed.run(t, "clusteradm", "unjoin", "--cluster-name", "cluster1")
	eventually(t, "the hub has no ManagedCluster", func(ctx context.Context) error {
		if _, err := hub.ocm.ClusterV1().ManagedClusters().Get(ctx, "cluster1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("Get(ManagedCluster) = %v, want NotFound", err)
		}
		return nil
	})
}
