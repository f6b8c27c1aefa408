package serviceaccount

import (
	"context"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	ocmfake "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/fake"
	"open-cluster-management.io/hub-apiserver/test/await"
)

// TestRevocationsHaveTheirOwnWorkers queues more accounts than there are workers, then an account
// that is being deleted and an account that does not exist. It checks that the last two do not
// wait.
func TestRevocationsHaveTheirOwnWorkers(t *testing.T) {
	c, err := New(Config{ClusterName: "c1", Workers: 1, Hub: ocmfake.NewClientset(), Managed: fake.NewClientset(), Clock: clock.RealClock{}})
	if err != nil {
		t.Fatal(err)
	}
	for name, deleted := range map[string]*metav1.Time{"a": nil, "b": nil, "c": nil, "deleted": {Time: time.Now()}} {
		owner := &v1beta1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: name, DeletionTimestamp: deleted}}
		if err := c.ownerInformer.GetIndexer().Add(owner); err != nil {
			t.Fatal(err)
		}
	}
	c.loop.Feeds = nil
	for _, name := range []string{"a", "b", "c", "deleted", "gone"} {
		c.loop.Initial = append(c.loop.Initial, cache.ObjectName{Name: name})
	}
	held, handled := make(chan struct{}), make(chan string, 5)
	c.loop.Reconcile = func(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
		if !c.loop.Urgent(key) {
			<-held
		}
		handled <- key.Name
		return 0, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.loop.Run(ctx) })
	defer running.Wait()
	defer cancel()
	defer close(held)
	got := sets.New[string]()
	for got.Len() < 2 {
		select {
		case name := <-handled:
			got.Insert(name)
		case <-time.After(await.Patience):
			t.Fatalf("accounts handled while the only ordinary worker is busy = %v, want deleted and gone", got)
		}
	}
	if !got.HasAll("deleted", "gone") {
		t.Errorf("accounts handled while the only ordinary worker is busy = %v, want deleted and gone", got)
	}
}
