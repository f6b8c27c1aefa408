package search

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// coldCallers is the number of callers that send their first requests concurrently.
const coldCallers = 8

func TestSearchByManyCallersAtOnce(t *testing.T) { onShared(t, searchByManyCallersAtOnce) }

// searchByManyCallersAtOnce checks that callers with different permissions find exactly their own resources with their
// first requests, if they send these concurrently while another caller searches continuously.
func searchByManyCallersAtOnce(t *testing.T, f *fleet) {
	mark := framework.Unique("cold")
	labelled := with{"label": with{markKey: mark}}
	hub, clusters := f.hubReporter(t), []*reporter{f.reporter(t), f.reporter(t)}
	hot := f.searcher(t, framework.Unique("hot"))
	ofHot, want := map[string]string{}, make([]map[string]string, coldCallers)
	callers := make([]*caller, coldCallers)
	for i := range callers {
		callers[i], want[i] = f.searcher(t, framework.Unique("cold")), map[string]string{}
	}
	for i, cluster := range clusters {
		var resources []inventory.Resource
		for n := range 20 * (i + 1) {
			resources = append(resources, cluster.resource("Pod", fmt.Sprintf("of-cluster-%d", i), fmt.Sprintf("p-%d", n), labelled))
		}
		cluster.has(t, append(resources, cluster.resource("Secret", "default", "s", labelled)))
	}
	var ofHub []inventory.Resource
	for i, c := range callers {
		namespace := framework.Unique("cold")
		f.makeNamespace(t, namespace)
		for n := range 5 + i {
			ofHub = append(ofHub, hub.resource("ConfigMap", namespace, fmt.Sprintf("c-%d", n), labelled))
			ofHot[uidOf("ConfigMap", namespace, fmt.Sprintf("c-%d", n))] = "ConfigMap"
			if i%3 != 0 || n < 2 {
				want[i][uidOf("ConfigMap", namespace, fmt.Sprintf("c-%d", n))] = "ConfigMap"
			}
		}
		hot.May(t, namespace, listing("", []string{"configmaps"}))
		rule := listing("", []string{"configmaps"})
		if i%3 == 0 {
			rule.ResourceNames = []string{"c-0", "c-1"}
		}
		c.May(t, namespace, rule)
		of := i % len(clusters)
		c.views(t, clusters[of].name)
		for n := range 20 * (of + 1) {
			want[i][uidOf("Pod", fmt.Sprintf("of-cluster-%d", of), fmt.Sprintf("p-%d", n))] = "Pod"
		}
	}
	hub.forgets(t, ofHub)
	hub.changes(t, inventory.Sync{AddResources: ofHub})
	// Grants take effect in order, so the effect of the last one shows that all have taken effect.
	last := framework.Unique("last")
	f.makeNamespace(t, last)
	marker := hub.resource("ConfigMap", last, "marker", with{"label": with{markKey: mark}})
	hub.forgets(t, []inventory.Resource{marker})
	hub.changes(t, inventory.Sync{AddResources: []inventory.Resource{marker}})
	hot.May(t, last, listing("", []string{"configmaps"}))
	ofHot[uidOf("ConfigMap", last, "marker")] = "ConfigMap"
	framework.Eventually(t, "all grants have taken effect", func(ctx context.Context) error { return answersAre(ctx, hot.OCM, markKey, mark, ofHot) })

	asking, stop := context.WithCancel(t.Context())
	defer stop()
	var warm sync.WaitGroup
	rounds, failed := 0, error(nil)
	warm.Go(func() {
		for ; asking.Err() == nil; rounds++ {
			if err := answersAre(t.Context(), hot.OCM, markKey, mark, ofHot); err != nil {
				failed = errors.Join(failed, err)
				return
			}
		}
	})
	begin := make(chan struct{})
	var cold errgroup.Group
	for i, c := range callers {
		// Consoles send several requests at the same time.
		for range 3 {
			cold.Go(func() error {
				<-begin
				if err := answersAre(t.Context(), c.OCM, markKey, mark, want[i]); err != nil {
					return fmt.Errorf("caller %d: %w", i, err)
				}
				return nil
			})
		}
	}
	close(begin)
	if err := cold.Wait(); err != nil {
		t.Error(err)
	}
	stop()
	warm.Wait()
	if failed != nil {
		t.Errorf("answer in round %d of the caller that searches continuously: %v", rounds, failed)
	}
	t.Logf("the caller that searches continuously received %d responses", rounds)
}
