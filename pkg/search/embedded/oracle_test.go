package embedded_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/test/enginetest"
	"open-cluster-management.io/hub-apiserver/test/fleetgen"
	"open-cluster-management.io/hub-apiserver/test/seed"
)

// questionTexts cover all methods of finding terms in large dictionaries.
var questionTexts = []string{
	"", "kind:Pod", "kind:pod", "kind:Pod status!=Running", "status:!=Running,!=Active", "restarts>3", "restarts<=2 kind:Pod", "restarts:0",
	"created:day", "created:month", "created<month", "created!=month", "created>2025-06-01", "created>=2025-10-31T23:00:00Z", "created:2025-09*", "created:2025-10-1*",
	"startedAt:week", "startedAt<=2025-08-15",
	"name:nginx-*", "name:*-api", "name:*in*o*", "name:*", "name>m", "name<=kafka", "name!=nginx-*", "label:team=team-07", "label:team", "label:*name=redis*", "label!=env=prod",
	"image:*istio*", "container:istio-proxy", "condition:Ready=False", "cluster:cluster-001,cluster-002", "cluster!=local-cluster",
	"nginx", "ngi ingress", "ng", "g", "e", "x", "q", "t", "0", "/", "_", `"="`, ".", "kind:Node w", "kind:Pod e r", "namespace:payments y", "2025-10", "01T1", "12:3", "55Z", "redis payments", "istio", "team=team-0", "name=nginx", "CLUSTER-00", "kubernetes", "10.", "zzzzzz",
	"podIP:10.12*", "podIP:*.1.*", "nothing:x", "nothing!=x", "_ownerUID:*1*",
}

func TestAnswersEqualOracle(t *testing.T) {
	for name, options := range map[string]embedded.Options{"WithRankings": {}, "WithoutRankings": embedded.WithoutRankings(), "FromCheckpoints": {}} {
		t.Run(name, func(t *testing.T) {
			r, dir := seed.Rand(t), t.TempDir()
			engine := open(t, dir, options)
			defer func() { closed(t, engine) }()
			compareAll(t, engine, fleetgen.Options{Clusters: 4, PerCluster: 1500, Seed: r.Uint64()}, r, func(changed bool) search.Engine {
				switch {
				case name != "FromCheckpoints":
				case changed:
					// Some changes follow the checkpoint.
					closed(t, engine)
					engine = open(t, dir, options)
				case r.IntN(2) == 0:
					checkpoint(t, engine)
				default:
					if err := engine.Checkpoint(func() {}); err != nil {
						t.Fatal(err)
					}
				}
				return engine
			})
		})
	}
}

// compareAll compares the answers of an engine and the oracle. It calls next amid changes and after them,
// and continues with the returned engine.
func compareAll(t *testing.T, engine search.Engine, options fleetgen.Options, r *rand.Rand, next func(changed bool) search.Engine) {
	t.Helper()
	oracle := enginetest.NewOracle()
	var reports []*search.Report
	for i := range options.Clusters {
		reports = append(reports, fleetgen.Cluster(options, i))
		apply(t, engine, reports[i])
		apply(t, oracle, reports[i])
	}
	scopes := []visibility.Scope{
		visibility.Everything(), visibilitytest.Scope(t, fleetgen.Policy(1, 2, 30), &user.DefaultInfo{Name: fleetgen.User}), {},
	}
	for range 3 {
		for _, text := range questionTexts {
			q := parse(t, text)
			scope := scopes[r.IntN(len(scopes))]
			if r.IntN(3) > 0 {
				scope = scopes[0]
			}
			compare(t, engine, oracle, scope, &q, text, r)
		}
		for i := range 20 {
			if i == 10 {
				engine = next(false)
			}
			delta := fleetgen.Update(r, reports[r.IntN(len(reports))], 1+r.IntN(30))
			gone := reports[slices.IndexFunc(reports, func(full *search.Report) bool { return full.Cluster == delta.Cluster })].Put
			for range r.IntN(5) {
				delta.Delete = append(delta.Delete, gone[r.IntN(len(gone))].UID)
			}
			apply(t, engine, &delta)
			apply(t, oracle, &delta)
			// These keywords are cached, and follow each change.
			text := []string{"g", "nginx"}[i%2]
			q := parse(t, text)
			compare(t, engine, oracle, scopes[0], &q, text, r)
		}
		engine = next(true)
	}
}

func compare(t *testing.T, engine, oracle search.Engine, scope visibility.Scope, q *query.Query, text string, r *rand.Rand) {
	t.Helper()
	now := fleetgen.Epoch
	properties := []string{"name", "created", "restarts", "status", "label", "namespace", "image", "podIP", "kind"}
	by := []search.Order{{Property: properties[r.IntN(len(properties))], Descending: r.IntN(2) == 0}}
	if r.IntN(2) == 0 {
		by = append(by, search.Order{Property: properties[r.IntN(len(properties))], Descending: r.IntN(2) == 0})
	}
	request := &search.Request{Query: *q, Now: now, Items: true, Limit: -1, OrderBy: by}
	if r.IntN(3) > 0 {
		request.Offset, request.Limit = r.IntN(1+r.IntN(6000)), r.IntN(50)
	}
	property := properties[r.IntN(len(properties))]
	completion := &search.CompletionRequest{Property: property, Query: *q, Now: now, Limit: -1}
	got, want := answer(t, engine, scope, request), answer(t, oracle, scope, request)
	if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("Search(%q) by %v, limit %d, offset %d (-want +got)\n%s", text, by, request.Limit, request.Offset, diff)
	}
	all := completed(t, engine, scope, completion)
	if diff := gocmp.Diff(counts(completed(t, oracle, scope, completion)), counts(all)); diff != "" {
		t.Fatalf("Complete(%q, %s) (-want +got)\n%s", text, property, diff)
	}
	completion.Limit = 3
	few := completed(t, engine, scope, completion)
	if !slices.Equal(few.Values, all.Values[:min(3, len(all.Values))]) || few.Numbers != all.Numbers ||
		few.Times != all.Times || few.Min != all.Min || few.Max != all.Max {
		t.Fatalf("Complete(%q, %s) with a limit = %+v, want the first of %+v", text, property, few, all)
	}
}

// answer returns the number of matches, and the items as texts.
func answer(t *testing.T, engine search.Engine, scope visibility.Scope, request *search.Request) []string {
	t.Helper()
	result, err := engine.Search(t.Context(), scope, request)
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{fmt.Sprint(result.Count)}
	for i := range result.Items {
		texts = append(texts, result.Items[i].UID+" "+string(result.Items[i].JSON()))
	}
	return texts
}

func completed(t *testing.T, engine search.Engine, scope visibility.Scope, request *search.CompletionRequest) *search.Completion {
	t.Helper()
	completion, err := engine.Complete(t.Context(), scope, request)
	if err != nil {
		t.Fatal(err)
	}
	return completion
}

func counts(completion *search.Completion) map[string]int {
	counts := map[string]int{}
	for _, value := range completion.Values {
		counts[value.Value] = value.Count
	}
	return counts
}
