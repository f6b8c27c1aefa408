package replicas

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// TestStartWithoutEtcd starts a server while its etcd is down. The server must live, report etcd in /readyz, refuse
// requests with status 503, stop on request, and become ready without a restart when etcd responds.
func TestStartWithoutEtcd(t *testing.T) {
	hub := framework.OwnCluster(t, localhub.ClusterOptions{Name: "hub", NoControllerManager: true})
	dir := framework.OwnDir(t)
	etcd := framework.Must(localhub.NewEtcd("external etcd", filepath.Join(dir, "etcd"), localhub.BinDir(), filepath.Join(dir, "etcd.log"), false))(t)
	framework.StopLater(t, etcd.Stop)
	server := framework.NewServer(t, localhub.APIServerOptions{
		Hub: hub, Dir: filepath.Join(dir, "server"), EtcdServers: []string{etcd.Endpoint}, Args: []string{"--search-engine=none"},
	})
	// The first start writes the credentials of the server, and an object.
	if err := errors.Join(etcd.Start(t.Context()), server.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	framework.Must(framework.Must(kubernetes.NewForConfig(hub.AdminConfig()))(t).CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: framework.Cluster1}}, metav1.CreateOptions{}))(t)
	works := framework.Direct(t, server).WorkV1().ManifestWorks(framework.Cluster1)
	framework.Must(works.Create(t.Context(), framework.ConfigMapWork("stored"), metav1.CreateOptions{}))(t)
	if err := errors.Join(server.Stop(t.Context()), etcd.Stop(t.Context())); err != nil {
		t.Fatal(err)
	}

	probes := framework.Must(kubernetes.NewForConfig(framework.Must(server.AnonymousConfig())(t)))(t).RESTClient()
	waits := func() {
		t.Helper()
		if err := server.Launch(); err != nil {
			t.Fatal(err)
		}
		exited := server.Exited()
		framework.Eventually(t, "the server lives without etcd", func(ctx context.Context) error {
			select {
			case <-exited:
				t.Fatal(server.Failure())
			default:
			}
			return probes.Get().AbsPath("/livez").Param("exclude", "etcd").Do(ctx).Error()
		})
		body, err := probes.Get().AbsPath("/readyz").DoRaw(t.Context())
		if err == nil || !strings.Contains(string(body)+fmt.Sprint(err), "[-]etcd failed") {
			t.Errorf("/readyz without etcd = %s, %v, want a failure of etcd", body, err)
		}
		err = probes.Get().AbsPath("/apis/work.open-cluster-management.io/v1/manifestworks").MaxRetries(0).Do(t.Context()).Error()
		if !apierrors.IsServiceUnavailable(err) {
			t.Errorf("a request without etcd = %v, want status 503", err)
		}
	}
	waits()
	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := server.Failure().Error(); !strings.Contains(got, "exit status 0") {
		t.Errorf("a server that is stopped while it waits for etcd: %s, want exit status 0", got)
	}
	waits()
	process := server.PID()
	if err := errors.Join(etcd.Start(t.Context()), server.WaitReady(t.Context())); err != nil {
		t.Fatal(err)
	}
	if server.PID() != process {
		t.Errorf("process of the server after etcd has started = %d, want %d", server.PID(), process)
	}
	framework.Must(works.Get(t.Context(), "stored", metav1.GetOptions{}))(t)
}
