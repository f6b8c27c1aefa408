package inventory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/test/seed"
)

func core(plural, kind string) *resource {
	return &resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: plural}, kind: kind, reported: true}
}

// randomRecords creates records of a few objects that refer to each other by UID, by name and by
// selectors.
type randomRecords struct {
	*rand.Rand
	kinds []*resource
}

func (r *randomRecords) next() *record {
	kind := r.kinds[r.IntN(len(r.kinds))]
	number := r.IntN(12)
	made := &record{
		resource: kind, name: fmt.Sprint(number % 6), namespace: fmt.Sprint("ns", number%2),
		uid: fmt.Sprintf("c/%s-%d", kind.Resource, number), properties: fmt.Appendf(nil, `{"v":%d}`, r.IntN(3)),
	}
	if kind.Resource == "nodes" {
		made.namespace = ""
	}
	var found references
	for range r.IntN(3) {
		found.add(ownedBy, byUID, "", fmt.Sprintf("c/%s-%d", r.kinds[r.IntN(len(r.kinds))].Resource, r.IntN(12)))
	}
	labels := map[string]string{"app": fmt.Sprint(r.IntN(2)), "tier": fmt.Sprint(r.IntN(2))}
	switch kind.Resource {
	case "pods":
		found.add(runsOn, node, "", fmt.Sprint(r.IntN(6)))
		found.add(attachedTo, configMap, made.namespace, fmt.Sprint(r.IntN(6)))
		made.labels = selectable(labels)
	case "services":
		if r.IntN(2) == 0 {
			delete(labels, "tier")
		}
		made.selector = selectorTerms(labels)
	}
	made.references = found
	return made
}

// put stores a record. It replaces a record with the same name.
func (r *randomRecords) put(s *state, made *record) {
	for other := range s.members[made.resource.GroupResource()] {
		if other.name == made.name && other.namespace == made.namespace && other.uid != made.uid {
			s.remove(made.resource.GroupResource(), other.uid)
			break
		}
	}
	s.put(made)
}

// TestStateConverges checks that the hub has the records that a new agent would report, after any
// changes of the cluster and any loss of reports, and without a full report.
func TestStateConverges(t *testing.T) {
	kinds := []*resource{core("pods", "Pod"), core("nodes", "Node"), core("configmaps", "ConfigMap"), core("services", "Service"), core("others", "Other")}
	random := &randomRecords{seed.Rand(t), kinds}
	for n := range 300 {
		s := newState()
		hub := &received{resources: map[string]inventory.Resource{}, edges: map[inventory.Edge]bool{}}
		send := func(full bool, outcome int) {
			b := s.begin(full)
			for range random.IntN(4) {
				random.put(s, random.next())
				r := random.next()
				s.remove(r.resource.GroupResource(), r.uid)
			}
			if outcome != 0 {
				response := hub.apply(decode(t, b))
				if outcome == 1 && (response.TotalResources != b.resources || response.TotalEdges != b.edges) {
					t.Fatalf("case %d: the hub has %d resources and %d edges, want %d and %d", n, response.TotalResources, response.TotalEdges, b.resources, b.edges)
				}
			}
			if outcome == 1 {
				s.applied()
			}
		}
		send(true, 1)
		for range 60 {
			switch r := random.next(); random.IntN(10) {
			case 0, 1, 2, 3, 4:
				random.put(s, r)
			case 5, 6:
				s.remove(r.resource.GroupResource(), r.uid)
			case 7:
				s.replace(r.resource.GroupResource(), []*record{r})
			default:
				// The hub applies the report, applies it but its response is lost, or does not
				// receive it.
				outcome := random.IntN(3)
				send(false, outcome)
				if outcome != 1 {
					send(false, 1)
				}
			}
		}
		send(false, 1)
		send(false, 1)
		send(false, 1)
		last := s.begin(false)
		hub.apply(decode(t, last))
		s.applied()
		want := &received{resources: map[string]inventory.Resource{}, edges: map[inventory.Edge]bool{}}
		fresh := newState()
		for _, r := range s.records {
			fresh.put(&record{resource: r.resource, uid: r.uid, namespace: r.namespace, name: r.name, properties: r.properties,
				references: r.references, labels: r.labels, selector: r.selector})
		}
		want.apply(decode(t, fresh.begin(true)))
		if diff := cmp.Diff(want.resources, hub.resources); diff != "" {
			t.Fatalf("case %d: resources (-want +got):\n%s", n, diff)
		}
		if diff := cmp.Diff(want.edges, hub.edges); diff != "" {
			t.Fatalf("case %d: edges (-want +got):\n%s", n, diff)
		}
	}
}

// TestDeletedRecordsKeepNoContent checks that a deleted object costs little memory while the hub does not
// answer, and that its deletion is reported after that.
func TestDeletedRecordsKeepNoContent(t *testing.T) {
	s, pod := newState(), core("pods", "Pod")
	s.put(&record{resource: pod, uid: "c/a", name: "a", properties: []byte(`{"name":"a"}`), access: []byte(`"rules":"[]"`)})
	lost := s.begin(true)
	s.remove(pod.GroupResource(), "c/a")
	if left := s.pending.removed["c/a"]; left == nil || left.properties != nil || left.access != nil {
		t.Errorf("pending deletion = %+v, want a record without content", left)
	}
	if report := decode(t, lost); len(report.AddResources) != 1 {
		t.Errorf("objects of the batch that began before = %+v, want the object", report.AddResources)
	}
	if report := decode(t, s.begin(false)); len(report.DeleteResources) != 1 || report.DeleteResources[0].UID != "c/a" {
		t.Errorf("deletions = %+v, want c/a", report.DeleteResources)
	}
}

// received contains the records and edges of a hub.
type received struct {
	resources map[string]inventory.Resource
	edges     map[inventory.Edge]bool
}

func (r *received) apply(report *inventory.Sync) *inventory.Response {
	if report.ClearAll {
		clear(r.resources)
		clear(r.edges)
	}
	for _, resource := range slices.Concat(report.AddResources, report.UpdateResources) {
		r.resources[resource.UID] = resource
	}
	for _, deleted := range report.DeleteResources {
		if _, ok := r.resources[deleted.UID]; !ok {
			continue
		}
		delete(r.resources, deleted.UID)
		maps.DeleteFunc(r.edges, func(edge inventory.Edge, _ bool) bool {
			return edge.SourceUID == deleted.UID || edge.DestUID == deleted.UID
		})
	}
	for _, edge := range report.AddEdges {
		r.edges[edge] = true
	}
	for _, edge := range report.DeleteEdges {
		delete(r.edges, edge)
	}
	return &inventory.Response{TotalResources: len(r.resources), TotalEdges: len(r.edges)}
}

func decode(t *testing.T, b *batch) *inventory.Sync {
	t.Helper()
	var body bytes.Buffer
	if err := b.encode(&body, "v1"); err != nil {
		t.Fatal(err)
	}
	report := &inventory.Sync{}
	if err := json.Unmarshal(body.Bytes(), report); err != nil {
		t.Fatalf("decoding the batch: %v in %s", err, body.String())
	}
	return report
}
