package fleetgen

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

var whole = Options{Clusters: 100, PerCluster: 5000}

func TestFleetIsTheSameEachTime(t *testing.T) {
	if !reflect.DeepEqual(Cluster(whole, 3), Cluster(whole, 3)) {
		t.Error("second Cluster(3) differs from the first, want the same")
	}
	other := whole
	other.Seed = 7
	if reflect.DeepEqual(Cluster(whole, 3), Cluster(other, 3)) {
		t.Error("Cluster(3) with another seed is the same, want another report")
	}
	if reflect.DeepEqual(Cluster(whole, 3).Put[100].Properties, Cluster(whole, 4).Put[100].Properties) {
		t.Error("Cluster(3) and Cluster(4) contain the same resource, want different resources")
	}
}

// TestDistributions checks that the distributions match the fleet that was used to measure the
// public search service.
func TestDistributions(t *testing.T) {
	edges, leaves, bytes, rows := 0, 0, 0, 0
	kindCounts := map[string]int{}
	for _, index := range []int{0, 1, 50, 99} {
		report := Cluster(whole, index)
		if len(report.Put) != 5000 || report.Hub != (index == 0) || !report.Full || report.Cluster != ClusterName(index) {
			t.Errorf("Cluster(%d) = %s, hub %t, full %t, %d resources, want a full report of 5000", index, report.Cluster, report.Hub, report.Full, len(report.Put))
		}
		edges += len(report.AddEdges)
		for i := range report.Put {
			p := report.Put[i].Properties
			rows++
			leaves += 2
			bytes += len(p.AppendJSON(nil))
			for j := range p {
				leaves += max(1, len(p[j].Leaves))
			}
			kindCounts[search.Text(p, query.Kind)]++
		}
	}
	for _, figure := range []struct {
		what             string
		got, least, most float64
	}{
		{"edges per resource", float64(edges) / float64(rows), 1.2, 1.4},
		{"leaf values per resource", float64(leaves) / float64(rows), 19, 22},
		{"bytes per resource", float64(bytes) / float64(rows), 520, 600},
		{"Pods per thousand", float64(kindCounts["Pod"]) * 1000 / float64(rows), 199, 201},
		{"Secrets per thousand", float64(kindCounts["Secret"]) * 1000 / float64(rows), 138, 142},
		{"kinds", float64(len(kindCounts)), 23, 23},
	} {
		if figure.got < figure.least || figure.got > figure.most {
			t.Errorf("%s = %.2f, want %.2f to %.2f", figure.what, figure.got, figure.least, figure.most)
		}
	}
}

func TestReportsAreWellFormed(t *testing.T) {
	for _, o := range []Options{whole, {Clusters: 3, PerCluster: 100}, {Clusters: 20, PerCluster: 700}, {Clusters: 3, PerCluster: 5000, HubNamespaces: 2000}} {
		for _, index := range []int{0, 2} {
			t.Run(fmt.Sprintf("%dx%d/%d", o.Clusters, o.PerCluster, index), func(t *testing.T) {
				report := Cluster(o, index)
				uids := map[string]bool{}
				for i := range report.Put {
					r := &report.Put[i]
					if uids[r.UID] || !strings.HasPrefix(r.UID, report.Cluster+"/") {
						t.Errorf("UID %s occurs twice or lacks the prefix, want a unique UID with prefix %s/", r.UID, report.Cluster)
					}
					uids[r.UID] = true
					// A decoder returns sorted and typed properties.
					decoded, err := query.DecodeProperties(r.Properties.AppendJSON(nil))
					if err != nil || !reflect.DeepEqual(decoded, r.Properties) {
						t.Fatalf("DecodeProperties(%s) = %v, want the properties of the report: %s", r.UID, err, cmp.Diff(decoded, r.Properties))
					}
				}
				seen := map[search.Edge]bool{}
				for _, e := range report.AddEdges {
					if seen[e] || !uids[e.SourceUID] || !uids[e.DestUID] {
						t.Errorf("edge %v occurs twice or refers to a missing resource, want a unique edge of existing resources", e)
					}
					seen[e] = true
				}
				if len(report.Put) != o.PerCluster {
					t.Errorf("Cluster() = %d resources, want %d", len(report.Put), o.PerCluster)
				}
			})
		}
	}
}
