package localhub_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

func newFleet(t *testing.T, dir string) *localhub.Fleet {
	t.Helper()
	framework.UseSlots(t, 2)
	fleet, err := localhub.NewFleet(localhub.FleetOptions{
		Dir:      dir,
		Clusters: []string{"cluster1"},
		NoFsync:  true,
		Progress: func(step string, elapsed time.Duration) { t.Logf("%6.1fs %s", elapsed.Seconds(), step) },
	})
	if err != nil {
		t.Fatal(err)
	}
	framework.KillLater(t, fleet.Kill)
	return fleet
}

// work returns a ManifestWork that delivers a ConfigMap of the same name.
func work(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "work.open-cluster-management.io/v1",
		"kind":       "ManifestWork",
		"metadata":   map[string]any{"namespace": "cluster1", "name": name},
		"spec": map[string]any{"workload": map[string]any{"manifests": []any{map[string]any{
			"apiVersion": "v1",
			"kind":       "ConfigMap",
			"metadata":   map[string]any{"namespace": "default", "name": name},
		}}}},
	}}
}

// TestFleet checks that a new Fleet continues with the data of one whose processes were killed.
func TestFleet(t *testing.T) {
	dir := t.TempDir()
	deliver := func(fleet *localhub.Fleet, name string) {
		t.Helper()
		if err := fleet.Hub.Apply(t.Context(), work(name)); err != nil {
			t.Fatal(err)
		}
		configMaps := clientFor(t, fleet.Members[0].AdminConfig()).CoreV1().ConfigMaps("default")
		await.Eventually(t, "ConfigMap "+name+" of the ManifestWork exists on the managed cluster", func(ctx context.Context) error {
			_, err := configMaps.Get(ctx, name, metav1.GetOptions{})
			return err
		})
	}

	fleet := newFleet(t, dir)
	if err := fleet.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	deliver(fleet, "first")

	t.Run("sends requests to the server directly", func(t *testing.T) {
		const path = "/apis/work.open-cluster-management.io/v1/manifestworks"
		admin, err := fleet.Server.UserConfig("admin", "system:masters")
		if err != nil {
			t.Fatal(err)
		}
		if err := clientFor(t, admin).RESTClient().Get().AbsPath(path).Do(t.Context()).Error(); err != nil {
			t.Error(err)
		}
		nobody, err := fleet.Server.AnonymousConfig()
		if err != nil {
			t.Fatal(err)
		}
		if err := clientFor(t, nobody).RESTClient().Get().AbsPath(path).Do(t.Context()).Error(); !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
			t.Errorf("anonymous list of ManifestWorks = %v, want Forbidden or Unauthorized", err)
		}
	})

	t.Run("reports the reason of an unavailable APIService", func(t *testing.T) {
		unused, err := localhub.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		bundle, err := fleet.Server.CABundle()
		if err != nil {
			t.Fatal(err)
		}
		await.Eventually(t, "RegisterAPIServices() with an unused port returns the APIService's reason", func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			err := fleet.Hub.RegisterAPIServices(ctx, unused, bundle)
			if err == nil || !strings.Contains(err.Error(), "APIService v1.work.open-cluster-management.io: FailedDiscoveryCheck") {
				return fmt.Errorf("error = %w", err)
			}
			return nil
		})
		if err := fleet.Server.Register(t.Context()); err != nil {
			t.Fatal(err)
		}
	})

	for _, process := range fleet.Processes() {
		if err := process.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	again := newFleet(t, dir)
	if err := again.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	deliver(again, "first")
	deliver(again, "second")
}
