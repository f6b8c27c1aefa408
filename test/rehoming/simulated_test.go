package rehoming_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"open-cluster-management.io/hub-apiserver/pkg/agent/fence"
	"open-cluster-management.io/hub-apiserver/pkg/agent/membership"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// simulatedFleet are agents that register, report and move like real ones, but apply nothing. They share one managed
// cluster, on which each has a namespace.
type simulatedFleet struct {
	count int
	stop  func()

	mu sync.Mutex
	// works are the ManifestWorks that each agent has listed, by the address of its hub.
	works map[string]map[string]int
}

// simulatedAgent is the workload of one agent.
type simulatedAgent struct {
	fleet *simulatedFleet
	name  string
}

// Serve implements membership.Workload.
func (a *simulatedAgent) Serve(ctx context.Context, hub membership.Hub) error {
	client, err := versioned.NewForConfig(hub.Config)
	if err != nil {
		return err
	}
	err = await.Poll(ctx, func(ctx context.Context) error {
		list, err := client.WorkV1().ManifestWorks(a.name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		a.fleet.mu.Lock()
		defer a.fleet.mu.Unlock()
		if a.fleet.works[hub.Config.Host] == nil {
			a.fleet.works[hub.Config.Host] = map[string]int{}
		}
		a.fleet.works[hub.Config.Host][a.name] = len(list.Items)
		return nil
	})
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// Remove implements membership.Workload.
func (a *simulatedAgent) Remove(context.Context, membership.Hub) error {
	return fmt.Errorf("the hub has deleted %s, want that it stays", a.name)
}

func simulatedName(i int) string { return fmt.Sprintf("simulated-%d", i) }

func writeKubeconfig(path string, invitation *localhub.Invitation) error {
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"hub": {Server: invitation.Server, CertificateAuthorityData: invitation.CA}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"agent": {Token: invitation.Token}},
		Contexts:       map[string]*clientcmdapi.Context{"hub": {Cluster: "hub", AuthInfo: "agent"}},
		CurrentContext: "hub",
	}, path)
}

// startSimulated starts simulated agents, joins them to a hub with a standby hub, and gives each a ManifestWork.
func startSimulated(t *testing.T, h, other *hub, managed *member, count int) *simulatedFleet {
	t.Helper()
	f := &simulatedFleet{count: count, works: map[string]map[string]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	f.stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(f.stop)
	bootstrap := filepath.Join(t.TempDir(), "bootstrap.kubeconfig")
	standby := filepath.Join(t.TempDir(), "standby.kubeconfig")
	for path, invitation := range map[string]*localhub.Invitation{bootstrap: h.invitation, standby: other.invitation} {
		if err := writeKubeconfig(path, invitation); err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig := framework.Must(os.ReadFile(standby))(t)
	config := managed.AdminConfig()
	config.QPS = -1
	var names []string
	for i := range count {
		name := simulatedName(i)
		names = append(names, name)
		if err := framework.MakeNamespace(ctx, managed.client, name); err != nil {
			t.Fatal(err)
		}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: standbySecret}, Data: map[string][]byte{"kubeconfig": kubeconfig}}
		framework.Must(managed.client.CoreV1().Secrets(name).Create(ctx, secret, metav1.CreateOptions{}))(t)
		guard := fence.New(membership.ReadEpoch(managed.client.CoreV1(), name, identitySecret))
		fenced := rest.CopyConfig(config)
		fenced.Wrap(guard.Transport)
		registrar := framework.Must(membership.New(membership.Config{
			ClusterName: name, Driver: registerv1alpha1.DriverCSR, BootstrapKubeconfig: bootstrap, Namespace: name, SecretName: identitySecret,
			Dir: filepath.Join(t.TempDir(), name), Managed: framework.Must(kubernetes.NewForConfig(fenced))(t), Identity: managed.client, Fence: guard,
			Dynamic: framework.Must(dynamic.NewForConfig(fenced))(t), Tune: func(config *rest.Config) { config.QPS = -1 },
		}))(t)
		running.Go(func() {
			if err := registrar.Run(ctx, &simulatedAgent{fleet: f, name: name}); err != nil {
				t.Errorf("agent %s: %v", name, err)
			}
		})
	}
	h.clusteradm(t, "accept", "--clusters", strings.Join(names, ","), "--wait", "--timeout", "15m")
	for _, name := range names {
		framework.Must(h.OCM.WorkV1().ManifestWorks(name).Create(ctx, appWork(name, "app-1"), metav1.CreateOptions{}))(t)
	}
	for _, name := range names {
		framework.Eventually(t, name+" works for the first hub", func(context.Context) error { return f.serves(name, h, -1) })
	}
	return f
}

// serves returns nil if an agent works for a hub. If works is not negative, the agent must have listed that many.
func (f *simulatedFleet) serves(name string, h *hub, works int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	listed, serves := f.works[h.invitation.Server][name]
	if !serves || works >= 0 && listed != works {
		return fmt.Errorf("%s works for the hub = %t, with %d ManifestWorks, want %d", name, serves, listed, works)
	}
	return nil
}

// await waits until all agents work for a hub.
func (f *simulatedFleet) await(t *testing.T, h *hub) {
	t.Helper()
	for i := range f.count {
		name := simulatedName(i)
		framework.Eventually(t, name+" has moved", func(ctx context.Context) error {
			if err := f.serves(name, h, 1); err != nil {
				return err
			}
			return h.movedTo(ctx, name)
		})
	}
}
