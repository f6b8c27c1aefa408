package server

import (
	"context"
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// TestWatchOfNamespaceReadsNoOther checks that a watch of one namespace that begins with its objects does not read the
// objects of other namespaces. Otherwise, n agents that start again cost n² reads.
func TestWatchOfNamespaceReadsNoOther(t *testing.T) {
	t.Parallel()
	f := framework.Shared(t)
	// Other tests send no requests to this server.
	server := f.StartServers(t, nil)[0]
	client := framework.Direct(t, server)
	const others = 20
	full, watched := framework.Unique("full"), framework.Unique("watched")
	for _, namespace := range []string{full, watched} {
		if err := framework.MakeNamespace(t.Context(), f.HubClient, namespace); err != nil {
			t.Fatal(err)
		}
	}
	for i := range others {
		work := framework.ConfigMapWork(fmt.Sprintf("other-%d", i))
		work.Namespace = full
		framework.Must(client.WorkV1().ManifestWorks(full).Create(t.Context(), work, metav1.CreateOptions{}))(t)
	}
	work := framework.ConfigMapWork("watched")
	work.Namespace = watched
	framework.Must(client.WorkV1().ManifestWorks(watched).Create(t.Context(), work, metav1.CreateOptions{}))(t)

	before := initialEvents(t, client)
	for _, options := range []metav1.ListOptions{
		{SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true},
		{ResourceVersion: "0"},
	} {
		watcher := framework.Must(client.WorkV1().ManifestWorks(watched).Watch(t.Context(), options))(t)
		defer watcher.Stop()
		select {
		case event := <-watcher.ResultChan():
			if found, ok := event.Object.(metav1.Object); !ok || event.Type != watch.Added || found.GetName() != work.Name {
				t.Errorf("Watch(%+v): first event = %s of %v, want ADDED of %s", options, event.Type, event.Object, work.Name)
			}
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
	if read := initialEvents(t, client) - before; read >= others {
		t.Errorf("two watches of a namespace with 1 ManifestWork read %v ManifestWorks, want less than the %d of another namespace", read, others)
	}
}

// initialEvents returns the number of ManifestWorks that watches of a server have read from its cache at their begin.
func initialEvents(t *testing.T, client versioned.Interface) float64 {
	t.Helper()
	total := 0.0
	framework.Eventually(t, "the server returns its metrics", func(ctx context.Context) error {
		raw, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		if err != nil {
			return err
		}
		metrics := testutil.NewMetrics()
		if err := testutil.ParseMetrics(string(raw), &metrics); err != nil {
			return err
		}
		if len(metrics["apiserver_watch_cache_events_received_total"]) == 0 {
			return errors.New("the server has received no events")
		}
		total = 0
		for _, sample := range metrics["apiserver_init_events_total"] {
			if sample.Metric["resource"] == "manifestworks" {
				total += float64(sample.Value)
			}
		}
		return nil
	})
	return total
}
