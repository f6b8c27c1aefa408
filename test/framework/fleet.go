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

// Cluster1 is the name of the managed cluster of every fleet, and of its namespace on the hub.
const Cluster1 = "cluster1"

// stopPatience is the maximum time for all processes of a fleet to stop.
const stopPatience = time.Minute

// Fleet is a running fleet with the clients of an administrator.
type Fleet struct {
	*localhub.Fleet
	// OCM is a client of our API, through the hub.
	OCM *versioned.Clientset
	// HubClient is a client of the hub. ManagedClient is a client of the managed cluster.
	HubClient, ManagedClient *kubernetes.Clientset
	// Kubeconfig is the path of the kubeconfig of the hub's administrator.
	Kubeconfig string
}

// sharedFleet starts the fleet that Shared returns, at the first call.
var sharedFleet = sync.OnceValues(func() (*Fleet, error) {
	dir, err := TempDir()
	if err != nil {
		return nil, err
	}
	f, err := StartFleet(context.Background(), localhub.FleetOptions{Dir: filepath.Join(dir, "shared"), Clusters: []string{Cluster1}, NoFsync: true})
	if err == nil {
		StopAtEnd(func(context.Context) error { return f.Kill() })
	}
	return f, err
})

// atEnd contains the functions that Run calls after the last test of a package.
var atEnd struct {
	mu   sync.Mutex
	stop []func(context.Context) error
}

// StopAtEnd registers stop, which Run calls after the last test of the package.
func StopAtEnd(stop func(context.Context) error) {
	atEnd.mu.Lock()
	defer atEnd.mu.Unlock()
	atEnd.stop = append(atEnd.stop, stop)
}

// TempDir returns the directory for all files that the tests of the package write.
var TempDir = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("KEEP"); dir != "" {
		return dir, os.MkdirAll(dir, 0o700)
	}
	return os.MkdirTemp("", "integration-")
})

// RunSharing is Run for tests that use the shared fleet. most is the number of control planes that one test runs in
// addition.
func RunSharing(m *testing.M, most int) int { return RunReserved(m, 2, most) }

// RunReserved is Run for tests that share control planes of their package, which call UseShared before they use them.
// most is the number of control planes that one test runs in addition. With all control planes, it waits until they may
// run.
func RunReserved(m *testing.M, shared, most int) int {
	reserve := localhub.DeclareShared
	if shared == localhub.Slots {
		reserve = localhub.ReserveShared
	}
	if err := reserve(shared, most); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return Run(m)
}

// Run runs the tests of a package, stops their shared processes and returns the exit code.
func Run(m *testing.M) int {
	code := m.Run()
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	for _, stop := range atEnd.stop {
		if err := stop(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "stopping the shared processes:", err)
			code = 1
		}
	}
	if dir, err := TempDir(); err == nil && os.Getenv("KEEP") == "" {
		_ = os.RemoveAll(dir)
	}
	return code
}

// Environment returns the number in an environment variable, or the value of otherwise if the
// variable is empty.
func Environment(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	return Must(strconv.Atoi(text))(t)
}

// Shared returns the shared fleet of the package. Its tests must use unique names and leave the
// fleet unchanged.
func Shared(t *testing.T) *Fleet {
	t.Helper()
	UseShared(t)
	return Must(sharedFleet())(t)
}

// OwnFleet starts a fleet for one test. The test is allowed to kill processes of it.
func OwnFleet(t *testing.T, opts localhub.FleetOptions) *Fleet {
	t.Helper()
	UseSlots(t, 1+len(opts.Clusters))
	opts.Dir, opts.NoFsync = OwnDir(t), true
	f := Must(StartFleet(t.Context(), opts))(t)
	KillLater(t, f.Kill)
	return f
}

// OwnDir returns the path of a directory for one test. It does not create the directory.
func OwnDir(t *testing.T) string {
	t.Helper()
	return filepath.Join(Must(TempDir())(t), strings.ReplaceAll(t.Name(), "/", "-"))
}

// StopLater calls stop at the end of a test. At that time the context of the test is already
// cancelled, so stop gets a context of its own.
func StopLater(t testing.TB, stop func(context.Context) error) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), stopPatience)
		defer cancel()
		if err := stop(ctx); err != nil {
			t.Error(err)
		}
	})
}

// KillLater calls kill at the end of a test.
func KillLater(t testing.TB, kill func() error) {
	t.Helper()
	t.Cleanup(func() {
		if err := kill(); err != nil {
			t.Error(err)
		}
	})
}

// OwnCluster starts a Kubernetes control plane for one test.
func OwnCluster(t testing.TB, opts localhub.ClusterOptions) *localhub.Cluster {
	t.Helper()
	UseSlots(t, 1)
	opts.Dir, opts.NoFsync = t.TempDir(), true
	cluster := Must(localhub.NewCluster(opts))(t)
	KillLater(t, cluster.Kill)
	if err := cluster.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return cluster
}

// StartFleet starts a fleet and creates its clients.
func StartFleet(ctx context.Context, opts localhub.FleetOptions) (*Fleet, error) {
	inner, err := localhub.NewFleet(opts)
	if err != nil {
		return nil, err
	}
	if err := inner.Start(ctx); err != nil {
		return nil, err
	}
	f := &Fleet{Fleet: inner, Kubeconfig: filepath.Join(opts.Dir, "hub-admin.kubeconfig")}
	if opts.Join == localhub.JoinByRegistration {
		// The controllers started before our API was registered.
		err = f.Connect(ctx)
	} else {
		err = f.connect()
	}
	return f, errors.Join(err, f.Hub.WriteAdminKubeconfig(f.Kubeconfig))
}

// Connect restarts the controllers, and creates the administrator's clients of a running fleet.
func (f *Fleet) Connect(ctx context.Context) error {
	// The garbage collector discovers new resources only every 30 seconds, and when it starts.
	if err := f.Hub.ControllerManager.Restart(ctx); err != nil {
		return err
	}
	return f.connect()
}

func (f *Fleet) connect() (err error) {
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

// Kubectl runs kubectl as the hub's administrator and returns its output.
func (f *Fleet) Kubectl(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	path := Must(localhub.Binary(localhub.BinDir(), "kubectl"))(t)
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
	// The server also deletes its namespace.
	deleteLater(t, f.OCM.ClusterV1().ManagedClusters().Delete, name)
	return name
}

// Unique returns a name that is unique across all tests and all runs of one test.
func Unique(name string) string { return name + "-" + rand.String(6) }

// MakeNamespace creates a namespace if it does not exist.
func MakeNamespace(ctx context.Context, hub kubernetes.Interface, name string) error {
	_, err := hub.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
