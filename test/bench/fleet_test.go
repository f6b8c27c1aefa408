package bench_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	cluster1     = "cluster1"
	startTimeout = 2 * time.Minute
	stopTimeout  = time.Minute
)

// fleet is a running fleet with clients. Most benchmarks share one.
type fleet struct {
	*localhub.Fleet
	ocm     *versioned.Clientset
	managed *kubernetes.Clientset
}

var stop = func() {}

var theFleet = sync.OnceValues(func() (*fleet, error) {
	dir := os.Getenv("KEEP")
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "bench-"); err != nil {
			return nil, err
		}
	}
	inner, err := localhub.NewFleet(localhub.FleetOptions{Dir: filepath.Join(dir, "fleet"), Clusters: []string{cluster1},
		APIServerArgs: []string{"--namespace-quota-objects=managedserviceaccounts=10000"}})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := inner.Start(ctx); err != nil {
		return nil, err
	}
	stop = func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if err := inner.Stop(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "stopping the fleet:", err)
		}
		if os.Getenv("KEEP") == "" {
			_ = os.RemoveAll(dir)
		}
	}
	f := &fleet{Fleet: inner}
	if f.ocm, err = versioned.NewForConfig(inner.Hub.AdminConfig()); err != nil {
		return nil, err
	}
	f.managed, err = kubernetes.NewForConfig(inner.Members[0].AdminConfig())
	return f, err
})

func TestMain(m *testing.M) {
	if is, err := runFresh(); is {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := framework.RunReserved(m, localhub.Slots, 0)
	stop()
	os.Exit(code)
}

func running(b *testing.B) *fleet {
	b.Helper()
	f, err := theFleet()
	if err != nil {
		b.Fatal(err)
	}
	return f
}

// number returns the number in an environment variable, or otherwise if the variable is not set.
func number(b *testing.B, name string, otherwise int) int {
	b.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		b.Fatalf("%s = %q, want a positive number", name, text)
	}
	return n
}
