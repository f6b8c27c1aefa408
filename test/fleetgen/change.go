package fleetgen

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// Update returns a report of changes to a full report: at most the given number of its Pods, each once, with
// another number of restarts and another status. It does not modify the full report.
func Update(r *rand.Rand, full *search.Report, pods int) search.Report {
	update := search.Report{Cluster: full.Cluster, Hub: full.Hub, Time: full.Time.Add(time.Minute)}
	first, end := podRange(full.Put)
	pods = min(pods, end-first)
	chosen := map[int]bool{}
	for len(chosen) < pods {
		i := first + r.IntN(end-first)
		if chosen[i] {
			continue
		}
		chosen[i] = true
		changed := slices.Clone(full.Put[i].Properties)
		for p := range changed {
			switch changed[p].Name {
			case "restarts":
				changed[p].Leaves = []query.Leaf{{Type: query.Number, Text: strconv.Itoa(r.IntN(1000))}}
			case query.Status:
				changed[p].Leaves = []query.Leaf{{Type: query.String, Text: pick(r, statuses).name}}
			}
		}
		update.Put = append(update.Put, search.Resource{UID: full.Put[i].UID, Properties: changed})
	}
	return update
}

// podRange returns the range of the Pods of a report, which are consecutive.
func podRange(resources []search.Resource) (first, end int) {
	isPod := func(resource search.Resource) bool { return search.Text(resource.Properties, query.Kind) == "Pod" }
	if first = slices.IndexFunc(resources, isPod); first < 0 {
		return 0, 0
	}
	for end = first; end < len(resources) && isPod(resources[end]); end++ {
	}
	return first, end
}
