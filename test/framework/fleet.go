package framework

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// Cluster1 is the one managed cluster of every fleet, and its namespace on the hub.
const Cluster1 = "cluster1"

// stopPatience is how long all processes of a fleet may take to stop.
const stopPatience = time.Minute

// Fleet is a running fleet with an administrator's clients.
type Fleet struct {
	*localhub.Fleet
	// OCM is a client of our API, through the hub.
	OCM *versioned.Clientset
	// HubClient is a client of the hub, ManagedClient of the managed cluster.
	HubClient, ManagedClient *kubernetes.Clientset
	// Kubeconfig is the file of the hub's administrator.
	Kubeconfig string
}

// sharedFleet starts the fleet of Shared at the first call.
var sharedFleet = sync.OnceValues(func() (*Fleet, error) {
	dir, err := TempDir()
	if err != nil {
		return nil, err
	}
	f, err := StartFleet(context.Background(), localhub.FleetOptions{Dir: filepath.Join(dir, "shared"), Clusters: []string{Cluster1}, NoFsync: true})
	if err == nil {
		StopAtEnd(f.Stop)
	}
	return f, err
})

// atEnd stops what the tests of a package share.
var atEnd struct {
	mu   sync.Mutex
	stop []func(context.Context) error
}

// StopAtEnd calls stop after the last test of the package.
func StopAtEnd(stop func(context.Context) error) {
	atEnd.mu.Lock()
	defer atEnd.mu.Unlock()
	atEnd.stop = append(atEnd.stop, stop)
}

// TempDir returns the directory of everything that the tests of the package write.
var TempDir = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("KEEP"); dir != "" {
		return dir, os.MkdirAll(dir, 0o700)
	}
	return os.MkdirTemp("", "integration-")
})

// Run runs the tests of a package, stops what they share and returns the exit code.
func Run(m *testing.M) int {
	code := m.Run()
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	for _, stop := range atEnd.stop {
		if err := stop(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "stopping what tests share:", err)
			code = 1
		}
	}
	if dir, err := TempDir(); err == nil && os.Getenv("KEEP") == "" {
		_ = os.RemoveAll(dir)
	}
	return code
}

// Environment returns the number in an environment variable, or otherwise if the variable is empty.
func Environment(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	return Must(strconv.Atoi(text))(t)
}

// Shared returns the one fleet of the package. A test that uses it uses names of its own and leaves
// the fleet as it found it.
func Shared(t *testing.T) *Fleet {
	t.Helper()
	f, err := sharedFleet()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// OwnFleet starts a fleet for one test, which may kill parts of it.
func OwnFleet(t *testing.T, opts localhub.FleetOptions) *Fleet {
	t.Helper()
	opts.Dir, opts.NoFsync = OwnDir(t), true
	f, err := StartFleet(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	StopLater(t, f.Stop)
	return f
}

// OwnDir returns a directory for one test.
func OwnDir(t *testing.T) string {
	t.Helper()
	dir, err := TempDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "-"))
}

// StopLater calls stop at the end of a test, when the context of the test is already done.
func StopLater(t *testing.T, stop func(context.Context) error) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), stopPatience)
		defer cancel()
		if err := stop(ctx); err != nil {
			t.Error(err)
		}
	})
}

// StartFleet starts a fleet and connects to it.
func StartFleet(ctx context.Context, opts localhub.FleetOptions) (*Fleet, error) {
	inner, err := localhub.NewFleet(opts)
	if err != nil {
		return nil, err
	}
	if err := inner.Start(ctx); err != nil {
		return nil, err
	}
	f := &Fleet{Fleet: inner, Kubeconfig: filepath.Join(opts.Dir, "hub-admin.kubeconfig")}
	return f, errors.Join(f.Connect(ctx), f.Hub.WriteAdminKubeconfig(f.Kubeconfig))
}

// Connect creates the administrator's clients of a fleet that runs.
func (f *Fleet) Connect(ctx context.Context) error {
	// The garbage collector looks for new resources every 30 seconds, and at its start.
	if err := f.Hub.ControllerManager.Restart(ctx); err != nil {
		return err
	}
	var err error
	if f.OCM, err = versioned.NewForConfig(f.Hub.AdminConfig()); err != nil {
		return err
	}
	if f.HubClient, err = kubernetes.NewForConfig(f.Hub.AdminConfig()); err != nil {
		return err
	}
	if len(f.Members) == 0 {
		return nil
	}
	f.ManagedClient, err = kubernetes.NewForConfig(f.Members[0].AdminConfig())
	return err
}

// OCMClient returns a client of our API. It fails the test if err is not nil.
func OCMClient(t *testing.T, config *rest.Config, err error) *versioned.Clientset {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return Must(versioned.NewForConfig(config))(t)
}

// Kubectl runs kubectl as the hub's administrator, and returns its output.
func (f *Fleet) Kubectl(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	path, err := localhub.Binary(localhub.BinDir(), "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), path, append([]string{"--kubeconfig=" + f.Kubeconfig}, args...)...)
	command.Stdin = strings.NewReader(stdin)
	out, err := command.CombinedOutput()
	return string(out), err
}

// AgentOf returns clients with the permissions of the agent of a cluster on the hub.
func (f *Fleet) AgentOf(t *testing.T, cluster string) (*kubernetes.Clientset, *versioned.Clientset) {
	t.Helper()
	config := Must(f.Hub.UserConfig(localhub.AgentUser(cluster), localhub.AgentGroup(cluster)))(t)
	return Must(kubernetes.NewForConfig(config))(t), Must(versioned.NewForConfig(config))(t)
}

// SilentCluster adds a cluster without an agent to the hub, and returns its name. The cluster is
// deleted at the end of the test.
func (f *Fleet) SilentCluster(t *testing.T) string {
	t.Helper()
	name := Unique("silent")
	if err := localhub.JoinCluster(t.Context(), f.Hub, name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		// Its namespace goes with it.
		if err := f.OCM.ClusterV1().ManagedClusters().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return name
}

// Unique returns a name that no other test uses, nor another run of the same test.
func Unique(name string) string { return name + "-" + rand.String(6) }

// MakeNamespace creates a namespace unless it exists.
func MakeNamespace(ctx context.Context, hub kubernetes.Interface, name string) error {
	_, err := hub.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
