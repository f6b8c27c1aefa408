package namespaces

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics/legacyregistry"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/refusal"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/fake"
	"open-cluster-management.io/hub-apiserver/test/await"
)

const cluster = "cluster1"

// fullHub is a hub whose quota allows only some ClusterNamespaces.
type fullHub struct {
	*fake.Clientset
	room     int
	creates  atomic.Int64
	refusals atomic.Int64
}

func newFullHub(room int) *fullHub {
	h := &fullHub{Clientset: fake.NewSimpleClientset(), room: room}
	var mu sync.Mutex
	h.PrependReactor("create", "clusternamespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		h.creates.Add(1)
		stored, err := h.names()
		if err != nil {
			return true, nil, err
		}
		if len(stored) >= h.room {
			h.refusals.Add(1)
			err := apierrors.NewForbidden(v1alpha1.Resource("clusternamespaces"), "", errors.New("exceeded quota"))
			err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: refusal.QuotaExceeded}}
			return true, nil, err
		}
		created, ok := action.(clienttesting.CreateAction)
		if !ok {
			return true, nil, fmt.Errorf("unexpected action %T", action)
		}
		return true, created.GetObject(), h.Tracker().Create(action.GetResource(), created.GetObject(), cluster)
	})
	return h
}

func (h *fullHub) names() ([]string, error) {
	list, err := h.Tracker().List(v1alpha1.SchemeGroupVersion.WithResource("clusternamespaces"), v1alpha1.SchemeGroupVersion.WithKind("ClusterNamespace"), cluster)
	if err != nil {
		return nil, err
	}
	reports, ok := list.(*v1alpha1.ClusterNamespaceList)
	if !ok {
		return nil, fmt.Errorf("unexpected list %T", list)
	}
	var names []string
	for _, report := range reports.Items {
		names = append(names, report.Name)
	}
	return names, nil
}

// TestFullHub checks a cluster with more namespaces than the quota of the hub allows. The agent
// reports as many as the quota allows, stops sending requests, and continues when the quota has
// room.
func TestFullHub(t *testing.T) {
	const room, count = 10, 200
	hub := newFullHub(room)
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var namespaces []runtime.Object
	for i := range count {
		namespaces = append(namespaces, &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n-%03d", i), UID: types.UID(fmt.Sprint(i))},
		})
	}
	managed := metadatafake.NewSimpleMetadataClient(scheme, namespaces...)
	c, err := New(Config{ClusterName: cluster, Hub: hub, Managed: managed})
	if err != nil {
		t.Fatal(err)
	}
	defer start(t, c)()

	reported := func(want int) func() error {
		return func() error {
			names, err := hub.names()
			if err != nil || len(names) != want {
				return fmt.Errorf("reported = %d, %w, want %d", len(names), err, want)
			}
			if got := waiting(t); got != count-want {
				return fmt.Errorf("waiting namespaces = %d, want %d", got, count-want)
			}
			return nil
		}
	}
	await.Eventually(t, "the hub has as many reports as the quota allows", reported(room))
	// The quota may reject one request of each worker before the first rejection is recorded.
	if got := hub.refusals.Load(); got > workers {
		t.Errorf("rejected requests = %d, want at most %d", got, workers)
	}
	if !c.Synced() {
		t.Error("Synced() = false, want true")
	}

	// The deletion of a namespace makes room for another one.
	names, err := hub.names()
	if err != nil {
		t.Fatal(err)
	}
	gone := names[0]
	if err := managed.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).Delete(t.Context(), gone, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.Eventually(t, "another namespace is reported instead", func() error {
		names, err := hub.names()
		if err != nil || len(names) != room || strings.Contains(strings.Join(names, " "), gone) {
			return fmt.Errorf("reported = %v, %w, want %d names without %s", names, err, room, gone)
		}
		return nil
	})
}

// waiting returns the number of waiting namespaces in the metric.
func waiting(t *testing.T) int {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "reconcile_objects" {
			continue
		}
		for _, sample := range family.GetMetric() {
			for _, label := range sample.GetLabel() {
				if label.GetValue() == stateWaiting {
					return int(sample.GetGauge().GetValue())
				}
			}
		}
	}
	return 0
}

// start runs a controller until the returned function is called.
func start(t *testing.T, c *Controller) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = c.Run(ctx) })
	return func() { cancel(); running.Wait() }
}

// TestNewNamespaceIsReported checks that the hub has a new and a deleted namespace at once, as a part of the second in which a new
// namespace gets the objects of ClusterPermissions; and two minutes after an outage of the hub.
func TestNewNamespaceIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheme := metadatafake.NewTestScheme()
		if err := metav1.AddMetaToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		hub, managed := newFullHub(10), metadatafake.NewSimpleMetadataClient(scheme)
		c, err := New(Config{ClusterName: cluster, Hub: hub, Managed: managed})
		if err != nil {
			t.Fatal(err)
		}
		defer start(t, c)()
		time.Sleep(time.Minute)

		resource := corev1.SchemeGroupVersion.WithResource("namespaces")
		reported := func(after time.Duration, want ...string) {
			t.Helper()
			time.Sleep(after)
			if got, err := hub.names(); err != nil || !slices.Equal(got, want) {
				t.Errorf("reported namespaces after %s = %q, %v, want %q", after, got, err, want)
			}
		}
		if err := managed.Tracker().Create(resource, namespace(nil), ""); err != nil {
			t.Fatal(err)
		}
		reported(100*time.Millisecond, "shop")
		if err := managed.Tracker().Delete(resource, "", "shop"); err != nil {
			t.Fatal(err)
		}
		reported(100 * time.Millisecond)

		var down atomic.Bool
		down.Store(true)
		hub.PrependReactor("create", "clusternamespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
			return down.Load(), nil, errors.New("no answer")
		})
		if err := managed.Tracker().Create(resource, namespace(nil), ""); err != nil {
			t.Fatal(err)
		}
		reported(time.Hour)
		down.Store(false)
		reported(2*time.Minute, "shop")
	})
}
