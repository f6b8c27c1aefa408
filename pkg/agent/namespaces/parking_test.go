package namespaces

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

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
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = c.Run(ctx) })
	defer running.Wait()
	defer cancel()

	reported := func(want int) func() error {
		return func() error {
			names, err := hub.names()
			if err != nil || len(names) != want {
				return fmt.Errorf("reported = %d, %w, want %d", len(names), err, want)
			}
			c.parked.mu.Lock()
			defer c.parked.mu.Unlock()
			if c.parked.probe == "" || c.parked.names.Len() != count-want-1 {
				return fmt.Errorf("parked = %d, probe = %q, want %d including the probe", c.parked.names.Len(), c.parked.probe, count-want)
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
