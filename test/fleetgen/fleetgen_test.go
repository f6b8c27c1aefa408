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
