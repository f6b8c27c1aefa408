package localhub_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

func clientFor(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func newCluster(t *testing.T, dir string) *localhub.Cluster {
	t.Helper()
	framework.UseSlots(t, 1)
	cluster, err := localhub.NewCluster(localhub.ClusterOptions{Name: "hub", Dir: dir, NoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	framework.KillLater(t, cluster.Kill)
	return cluster
}

// TestCluster checks a control plane over crashes and restarts with the same data.
func TestCluster(t *testing.T) {
	dir := t.TempDir()
	cluster := newCluster(t, dir)
	begin := time.Now()
	if err := cluster.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("ready after %s", time.Since(begin).Round(time.Millisecond))
	admin := clientFor(t, cluster.AdminConfig())

	t.Run("keeps acknowledged writes after SIGKILL", func(t *testing.T) {
		marker := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "marker"}}
		if _, err := admin.CoreV1().ConfigMaps("default").Create(t.Context(), marker, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, p := range cluster.Processes() {
			if err := p.Kill(); err != nil {
				t.Fatal(err)
			}
			if p.Running() {
				t.Errorf("Running() of %s after Kill() = true, want false", p.Name)
			}
		}
		if err := cluster.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.CoreV1().ConfigMaps("default").Get(t.Context(), "marker", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	})

	t.Run("restarts each process separately", func(t *testing.T) {
		for _, p := range cluster.Processes() {
			if err := p.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			await.Eventually(t, "the API server serves requests after a restart of "+p.Name, func(ctx context.Context) error {
				_, err := admin.CoreV1().ConfigMaps("default").Get(ctx, "marker", metav1.GetOptions{})
				return err
			})
		}
	})

	t.Run("deletes namespaces and collects garbage", func(t *testing.T) {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "doomed"}}
		ns, err := admin.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		owner, err := admin.CoreV1().ConfigMaps("doomed").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap")),
		}}}
		if _, err := admin.CoreV1().ConfigMaps("doomed").Create(t.Context(), owned, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := admin.CoreV1().ConfigMaps("doomed").Delete(t.Context(), "owner", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		await.Eventually(t, "ConfigMap owned is deleted", func(ctx context.Context) error {
			_, err := admin.CoreV1().ConfigMaps("doomed").Get(ctx, "owned", metav1.GetOptions{})
			return framework.IsGone(err)
		})
		if err := admin.CoreV1().Namespaces().Delete(t.Context(), ns.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		await.Eventually(t, "Namespace "+ns.Name+" is deleted", func(ctx context.Context) error {
			_, err := admin.CoreV1().Namespaces().Get(ctx, ns.Name, metav1.GetOptions{})
			return framework.IsGone(err)
		})
	})

	t.Run("authenticates users with name and groups", func(t *testing.T) {
		config, err := cluster.UserConfig("alice", "team-a", "team-b")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := clientFor(t, config).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("list of Nodes by alice without a binding = %v, want Forbidden", err)
		}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "team-b-views"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "team-b"}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node"},
		}
		if _, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		await.Eventually(t, "alice can list Nodes", func(ctx context.Context) error {
			_, err := clientFor(t, config).CoreV1().Nodes().List(ctx, metav1.ListOptions{})
			return err
		})
		if _, err := clientFor(t, cluster.AnonymousConfig()).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("anonymous list of Nodes = %v, want Forbidden", err)
		}
	})

	t.Run("a new Cluster keeps data and credentials", func(t *testing.T) {
		account, err := cluster.ServiceAccountConfig(t.Context(), "default", "robot")
		if err != nil {
			t.Fatal(err)
		}
		user, err := cluster.UserConfig("admin", "system:masters")
		if err != nil {
			t.Fatal(err)
		}
		if err := cluster.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		again := newCluster(t, dir)
		if err := again.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		kubeconfig := t.TempDir() + "/hub.kubeconfig"
		if err := again.WriteAdminKubeconfig(kubeconfig); err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := clientFor(t, config).CoreV1().ConfigMaps("default").Get(t.Context(), "marker", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		// Another process may have taken the previous port.
		user.Host, account.Host = config.Host, config.Host
		if _, err := clientFor(t, user).CoreV1().ConfigMaps("default").Get(t.Context(), "marker", metav1.GetOptions{}); err != nil {
			t.Errorf("Get() with a client certificate of the previous Cluster = %v, want success", err)
		}
		if _, err := clientFor(t, account).CoreV1().ConfigMaps("default").Get(t.Context(), "marker", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("Get() with a token of the previous Cluster = %v, want Forbidden", err)
		}
	})
}

// TestEtcdInADeepDirectory checks that etcd starts in a directory whose path is too long for a
// Unix socket.
func TestEtcdInADeepDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep", 30))
	etcd, err := localhub.NewEtcd("etcd", dir, localhub.BinDir(), filepath.Join(dir, "etcd.log"), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcd.Kill() })
	sockets := filepath.Dir(strings.TrimPrefix(etcd.Endpoint, "unix://"))
	for range 2 {
		if err := etcd.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := etcd.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(sockets); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Stat(%s) after Stop = %v, want it not to exist", sockets, err)
	}
}
