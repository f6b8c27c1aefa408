package postgres_test

import (
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/postgres"
	"open-cluster-management.io/hub-apiserver/test/postgrestest"
)

// TestRelatedThroughOneResource checks the cost of paths through a resource to which many others are related, such as a
// ConfigMap that all Pods of a namespace mount: there is a path between any two of them.
func TestRelatedThroughOneResource(t *testing.T) {
	engine := open(t, postgres.Options{DSN: postgrestest.Start(t)})
	const pods = 3000
	report := &search.Report{Cluster: "c1", Full: true, Time: time.Now(), Put: []search.Resource{
		resource("c1", "config", text("kind", "ConfigMap")), resource("c1", "app", text("kind", "Application")),
	}}
	relate := func(from, to string) {
		report.AddEdges = append(report.AddEdges, search.Edge{SourceUID: "c1/" + from, DestUID: "c1/" + to, Type: "attachedTo"})
	}
	relate("pod-0", "app")
	for i := range pods {
		pod, job := fmt.Sprintf("pod-%d", i), fmt.Sprintf("job-%d", i)
		report.Put = append(report.Put, resource("c1", pod, text("kind", "Pod")), resource("c1", job, text("kind", "Job")))
		relate(pod, "config")
		relate(job, "config")
	}
	mustApply(t, engine, report)
	ask := func(kind, related string, limit int) (*search.Result, error) {
		return engine.Search(within(t), visibility.Everything(), &search.Request{
			Query: equals("kind", kind), Related: true, RelatedItems: true, RelatedKinds: []string{related}, RelatedLimit: limit, RelatedDepth: 3, Now: time.Now(),
		})
	}
	for _, test := range []struct {
		kind, related string
		limit         int
		count, to     int
	}{
		{"Pod", "Application", -1, 1, pods},
		{"Application", "Pod", -1, pods, 1},
		{"Pod", "Job", 10, pods, pods},
	} {
		what := fmt.Sprintf("%ss related to %ss", test.related, test.kind)
		result, err := ask(test.kind, test.related, test.limit)
		if err != nil || len(result.Related) != 1 || result.Related[0].Count != test.count {
			t.Fatalf("%s = %+v, %v, want %d", what, result, err, test.count)
		}
		items := result.Related[0].Items
		if want := min(uint(test.count), uint(test.limit)); uint(len(items)) != want {
			t.Errorf("%s: %d items, want %d", what, len(items), want)
		}
		for _, item := range items {
			if len(item.RelatedTo) != test.to {
				t.Errorf("%s: %s is related to %d matches, want %d", what, item.UID, len(item.RelatedTo), test.to)
			}
		}
	}
	if _, err := ask("Pod", "Job", -1); !apierrors.IsBadRequest(err) {
		t.Errorf("Search() for %d Jobs that are related to %d Pods each = %v, want an error with status 400", pods, pods, err)
	}
}
