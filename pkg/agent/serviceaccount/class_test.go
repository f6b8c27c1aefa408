package serviceaccount

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	ocmfake "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/fake"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile/fair"
)

// TestRevocationsWaitForNoOther queues more accounts than there are workers, and then one that is
// deleted and one that is gone.
func TestRevocationsWaitForNoOther(t *testing.T) {
	c, err := New(Config{ClusterName: "c1", Workers: 1, Hub: ocmfake.NewClientset(), Managed: fake.NewClientset(), Clock: clock.RealClock{}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.queue.ShutDown()
	for name, deleted := range map[string]*metav1.Time{"a": nil, "b": nil, "c": nil, "deleted": {Time: time.Now()}} {
		owner := &v1beta1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: name, DeletionTimestamp: deleted}}
		if err := c.ownerInformer.GetIndexer().Add(owner); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "b", "c", "deleted", "gone"} {
		c.queue.Add(name)
	}
	held, handled := make(chan struct{}), make(chan string, 5)
	defer close(held)
	go c.lanes.Serve(t.Context(), func(_ context.Context, name string, class fair.Class) {
		if !class.Priority {
			<-held
		}
		handled <- name
	})
	got := sets.New[string]()
	for got.Len() < 2 {
		select {
		case name := <-handled:
			got.Insert(name)
		case <-time.After(time.Minute):
			t.Fatalf("handled while the only ordinary worker is busy = %v, want deleted and gone", got)
		}
	}
	if !got.HasAll("deleted", "gone") {
		t.Errorf("handled while the only ordinary worker is busy = %v, want deleted and gone", got)
	}
}
