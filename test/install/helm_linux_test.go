package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// TestInstallWithHelm installs a hub and a managed cluster from the charts of a release, with Helm itself, upgrades the
// hub, and uninstalls both. The logs, in JSON, contain no token.
func TestInstallWithHelm(t *testing.T) {
	t.Parallel()
	framework.Slots(t, 2)
	hub := newSite(t, "hub", nil)
	hubPort := portOf(t, hub)
	managed := newSite(t, "managed", map[int]string{hubPort: net.JoinHostPort("127.0.0.1", strconv.Itoa(hubPort))})
	h := newHelm(t)

	h.run(t, hub, "install", "hub", h.chart("hub-apiserver"), "--namespace=default", "--wait", "--set=image.tag=dev", "--set=localCluster.image.tag=dev", "--set=localCluster.extraArgs={--logging-format=json,--v=6}", "--set=extraArgs={--logging-format=json,--v=6}")
	hub.ready(t, hubNamespace, 1)
	await.Eventually(t, "searches find the server on the hub", func(context.Context) error {
		out, err := hub.try(t, "clusteradm", "search", "cluster:local-cluster", "kind:Deployment", "name:hub-apiserver", "--count")
		if err == nil && strings.TrimSpace(out) != "1" {
			err = fmt.Errorf("count = %s, want 1", out)
		}
		return err
	})
	token := hub.run(t, "kubectl", "create", "token", "agent-registration-bootstrap", "--namespace=open-cluster-management", "--duration=1h")
	config := clientcmdapi.NewConfig()
	config.Clusters["hub"] = &clientcmdapi.Cluster{Server: hub.AdminConfig().Host, CertificateAuthorityData: hub.AdminConfig().CAData}
	config.AuthInfos["bootstrap"] = &clientcmdapi.AuthInfo{Token: strings.TrimSpace(token)}
	config.Contexts["bootstrap"] = &clientcmdapi.Context{Cluster: "hub", AuthInfo: "bootstrap"}
	config.CurrentContext = "bootstrap"
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	managed.run(t, "kubectl", "create", "namespace", agentNamespace)
	managed.run(t, "kubectl", "create", "secret", "generic", "bootstrap-hub-kubeconfig", "--namespace="+agentNamespace, "--from-file=kubeconfig="+kubeconfig)
	h.run(t, managed, "install", "agent", h.chart("hub-agent"), "--namespace="+agentNamespace, "--set=image.tag=dev", "--set=clusterName=cluster1", "--set=extraArgs={--logging-format=json,--v=6}")
	await.Eventually(t, "the cluster requests to join", func(ctx context.Context) error {
		_, err := hub.ocm.ClusterV1().ManagedClusters().Get(ctx, "cluster1", metav1.GetOptions{})
		return err
	})
	hub.run(t, "clusteradm", "accept", "--clusters", "cluster1", "--wait")
	hub.run(t, "kubectl", "apply", "-f", "artifacts/example/clusterpermission.yaml")
	await.Eventually(t, "the managed cluster has the ClusterRoleBinding", func(ctx context.Context) error {
		bindings, err := managed.kube.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
		if err == nil && !slices.ContainsFunc(bindings.Items, bindsOnCall) {
			err = fmt.Errorf("none of %d ClusterRoleBindings is that of on-call", len(bindings.Items))
		}
		return err
	})

	hub.run(t, "kubectl", "apply", "-f", "artifacts/example/managedserviceaccount.yaml")
	await.Eventually(t, "the hub has the token of the account", func(ctx context.Context) error {
		_, err := hub.kube.CoreV1().Secrets("cluster1").Get(ctx, "example", metav1.GetOptions{})
		return err
	})
	secrets := hub.secrets(t)
	maps.Copy(secrets, managed.secrets(t))

	// An upgrade keeps the data.
	before := hub.ready(t, hubNamespace, 1)[0]
	h.run(t, hub, "upgrade", "hub", h.chart("hub-apiserver"), "--namespace=default", "--wait", "--reuse-values", "--set=resources.limits.memory=2Gi")
	await.Eventually(t, "the new Pod has the new limit", func(ctx context.Context) error {
		pods, err := hub.kube.CoreV1().Pods(hubNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, pod := range pods.Items {
			if limit := pod.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory]; pod.UID != before.UID && limit.String() == "2Gi" {
				return nil
			}
		}
		return errors.New("there is no such Pod")
	})
	hub.ready(t, hubNamespace, 1)
	// One replica: the aggregator may still return 503 for some kinds.
	await.Eventually(t, "the ClusterPermission exists after the upgrade", func(ctx context.Context) error {
		_, err := hub.ocm.RbacV1alpha1().ClusterPermissions("cluster1").Get(ctx, "on-call", metav1.GetOptions{})
		return err
	})

	// The values of the charts stay.
	for _, out := range []string{hub.run(t, "clusteradm", "init", "--csr-probe-timeout=0"), managed.run(t, "clusteradm", "join")} {
		if strings.Contains(out, " configured\n") || strings.Contains(out, " created\n") {
			t.Errorf("clusteradm on an installation of Helm printed\n%s\nwant all objects unchanged", out)
		}
	}

	h.run(t, managed, "uninstall", "agent", "--namespace="+agentNamespace)
	h.run(t, hub, "uninstall", "hub", "--namespace=default")
	if _, err := hub.kube.CoreV1().PersistentVolumeClaims(hubNamespace).Get(t.Context(), "hub-apiserver", metav1.GetOptions{}); err != nil {
		t.Errorf("the volume of the hub after helm uninstall: %v", err)
	}
	if _, err := managed.ocm.WorkV1().AppliedManifestWorks().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("the records of the agent after helm uninstall: %v", err)
	}
	await.Eventually(t, "the Pods are gone", func(ctx context.Context) error {
		for _, s := range []*site{hub, managed} {
			pods, err := s.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
			if err != nil || len(pods.Items) > 0 {
				return fmt.Errorf("%w; Pods = %d, want none", err, len(pods.Items))
			}
		}
		_, err := hub.kube.AppsV1().Deployments(hubNamespace).Get(ctx, "hub-apiserver", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("Get(Deployment) = %w, want NotFound", err)
		}
		return nil
	})
	hub.checkLogs(t, secrets)
	managed.checkLogs(t, secrets)
}

// helm is a built Helm, and the charts of a release.
type helm struct{ program, dist string }

func newHelm(t *testing.T) *helm {
	t.Helper()
	h := &helm{program: filepath.Join(localhub.BinDir(), "helm"), dist: t.TempDir()}
	for _, args := range [][]string{
		{"build", "-buildvcs=false", "-ldflags=-s -w", "-o", h.program, "helm.sh/helm/v4/cmd/helm"},
		{"run", "-buildvcs=false", ".", "-only=charts", "-version=v0.0.0-test", "-root=../..", "-dist=" + h.dist},
	} {
		command := exec.CommandContext(t.Context(), "go", args...)
		command.Dir = filepath.Join(localhub.Root(), "hack", "release")
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	return h
}

func (h *helm) chart(name string) string {
	return filepath.Join(h.dist, "charts", name+"-0.0.0-test.tgz")
}

// run runs Helm on a site as its administrator.
func (h *helm) run(t *testing.T, s *site, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	command := exec.CommandContext(ctx, h.program, args...)
	home := t.TempDir()
	command.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
