package integration_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// cluster1 is the one managed cluster of every fleet, and its namespace on the hub.
const cluster1 = "cluster1"

// patience is how long a test waits for something that is sure to happen.
const patience = time.Minute

// stopPatience is how long all processes of a fleet may take to stop.
const stopPatience = time.Minute

// fleet is a running fleet with an administrator's clients.
type fleet struct {
	*localhub.Fleet
	// ocm talks to our API through the hub.
	ocm *versioned.Clientset
	// hub talks to the hub itself, managed to the managed cluster.
	hub, managed *kubernetes.Clientset
	// kubeconfig is the file of the hub's administrator.
	kubeconfig string
}

// sharedFleet starts, once, the fleet of all tests that leave it as they found it.
var sharedFleet = sync.OnceValues(func() (*fleet, error) {
	dir, err := tempDir()
	if err != nil {
		return nil, err
	}
	f, err := startFleet(context.Background(), localhub.FleetOptions{Dir: filepath.Join(dir, "shared"), Clusters: []string{cluster1}, NoFsync: true})
	if err == nil {
		stopAtEnd(f.Stop)
	}
	return f, err
})

// atEnd stops what tests share.
var atEnd struct {
	mu   sync.Mutex
	stop []func(context.Context) error
}

func stopAtEnd(stop func(context.Context) error) {
	atEnd.mu.Lock()
	defer atEnd.mu.Unlock()
	atEnd.stop = append(atEnd.stop, stop)
}

// tempDir is the directory of everything that the tests write.
var tempDir = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("KEEP"); dir != "" {
		return dir, os.MkdirAll(dir, 0o700)
	}
	return os.MkdirTemp("", "integration-")
})

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	code := m.Run()
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	for _, stop := range atEnd.stop {
		if err := stop(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "stopping what tests share:", err)
			code = 1
		}
	}
	if dir, err := tempDir(); err == nil && os.Getenv("KEEP") == "" {
		_ = os.RemoveAll(dir)
	}
	return code
}

// shared returns the fleet of all tests that leave it as they found it.
func shared(t *testing.T) *fleet {
	t.Helper()
	f, err := sharedFleet()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// ownFleet starts a fleet that the test may kill parts of.
func ownFleet(t *testing.T, opts localhub.FleetOptions) *fleet {
	t.Helper()
	opts.Dir, opts.NoFsync = ownDir(t), true
	f, err := startFleet(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	stopLater(t, f.Stop)
	return f
}

// ownDir returns a directory for one test.
func ownDir(t *testing.T) string {
	t.Helper()
	dir, err := tempDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "-"))
}

// stopLater stops what a test has started, when the test's own context is done already.
func stopLater(t *testing.T, stop func(context.Context) error) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), stopPatience)
		defer cancel()
		if err := stop(ctx); err != nil {
			t.Error(err)
		}
	})
}

func startFleet(ctx context.Context, opts localhub.FleetOptions) (*fleet, error) {
	inner, err := localhub.NewFleet(opts)
	if err != nil {
		return nil, err
	}
	if err := inner.Start(ctx); err != nil {
		return nil, err
	}
	f := &fleet{Fleet: inner, kubeconfig: filepath.Join(opts.Dir, "hub-admin.kubeconfig")}
	return f, errors.Join(f.connect(ctx), f.Hub.WriteAdminKubeconfig(f.kubeconfig))
}

func (f *fleet) connect(ctx context.Context) error {
	// The garbage collector looks for new resources every 30 seconds, and at its start.
	if err := f.Hub.ControllerManager.Restart(ctx); err != nil {
		return err
	}
	var err error
	if f.ocm, err = versioned.NewForConfig(f.Hub.AdminConfig()); err != nil {
		return err
	}
	if f.hub, err = kubernetes.NewForConfig(f.Hub.AdminConfig()); err != nil {
		return err
	}
	if len(f.Members) == 0 {
		return nil
	}
	f.managed, err = kubernetes.NewForConfig(f.Members[0].AdminConfig())
	return err
}

// eventually polls until check returns nil; what completes "waiting until".
func eventually(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	if err := poll(t.Context(), check); err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}

func poll(ctx context.Context, check func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		// A check that the deadline cut short has no reason to tell.
		if err != nil && (ctx.Err() == nil || last == nil) {
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// must returns the value of a call that may not fail.
func must[T any](value T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func ocmClient(t *testing.T, config *rest.Config, err error) *versioned.Clientset {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return must(versioned.NewForConfig(config))(t)
}
