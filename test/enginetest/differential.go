package enginetest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

const (
	differentialRounds    = 60
	differentialQuestions = 20
	// SeedVariable is the environment variable with the seed, to repeat a random test.
	SeedVariable = "SEARCH_SEED"
)

// Seed returns the seed in SEARCH_SEED, or a random one.
func Seed(t testing.TB) uint64 {
	t.Helper()
	text := os.Getenv(SeedVariable)
	if text == "" {
		return rand.Uint64()
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", SeedVariable, err)
	}
	return seed
}

// Differential applies the same random reports to two empty engines, sends both the same random
// requests, and checks that the answers are equal. The seed determines all random values. It is
// logged if the test fails.
func Differential(t *testing.T, seed uint64, got, want search.Engine) {
	t.Helper()
	d := &differential{T: t, model: newModel(seed), got: got, want: want}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("repeat with %s=%d", SeedVariable, seed)
		}
	})
	for range 4 {
		d.scopes = append(d.scopes, d.model.scope(t))
	}
	for round := range differentialRounds {
		d.what = fmt.Sprintf("round %d", round)
		gotVersion, wantVersion := version(t, got), version(t, want)
		for range 1 + d.model.IntN(3) {
			d.report()
		}
		d.mark(round)
		d.compareChanges(gotVersion, wantVersion)
		d.compareStates()
		d.scopes[d.model.IntN(len(d.scopes))] = d.model.scope(t)
		for range differentialQuestions {
			d.ask()
			if t.Failed() {
				return
			}
		}
	}
}

type differential struct {
	*testing.T
	model     *model
	got, want search.Engine
	scopes    []visibility.Scope
	what      string
}

// equal ends the test if two answers differ.
func (d *differential) equal(what string, got, want any) {
	d.Helper()
	if difference := gocmp.Diff(want, got, Comparing); difference != "" {
		d.Fatalf("%s: %s (-want +got):\n%s", d.what, what, difference)
	}
}

func (d *differential) report() {
	d.Helper()
	if d.model.one(25) {
		cluster := choose(d.model, randomClusters)
		d.model.forget(cluster)
		for _, engine := range []search.Engine{d.got, d.want} {
			if err := engine.RemoveCluster(deadline(d), cluster); err != nil {
				d.Fatalf("%s: RemoveCluster(%s): %v", d.what, cluster, err)
			}
		}
		return
	}
	report := d.model.report(d.T)
	got, want := apply(d, d.got, report), apply(d, d.want, report)
	d.equal(fmt.Sprintf("Apply(%+v)", *report), withoutVersion(got), withoutVersion(want))
}

// mark changes one resource, so that every round has at least one change.
func (d *differential) mark(round int) {
	d.Helper()
	report := delta(d, randomClusters[1], object{"marked", fmt.Sprintf(`{"kind":"Mark","name":"mark","round":%d}`, round)})
	d.model.exist(report)
	for _, engine := range []search.Engine{d.got, d.want} {
		apply(d, engine, report)
	}
}

// changed is a change without its version, because the contract does not define the numbers.
type changed struct {
	Cluster, UID            string
	Hub                     bool
	Before, After, Internal string
}

func (d *differential) compareChanges(gotVersion, wantVersion uint64) {
	d.Helper()
	normal := func(engine search.Engine, after uint64) [][]changed {
		changes := changesSince(d, engine, after, 1<<20)
		var reports [][]changed
		for i, change := range changes {
			if i == 0 || change.Version != changes[i-1].Version {
				reports = append(reports, nil)
			}
			one := changed{Cluster: change.Cluster, UID: change.UID, Hub: change.Hub}
			if change.Before != nil {
				one.Before = string(change.Before.AppendJSON(nil))
			}
			if change.After != nil {
				one.After = string(change.After.AppendJSON(nil))
			}
			one.Internal = string(change.Internal.AppendJSON(nil))
			reports[len(reports)-1] = append(reports[len(reports)-1], one)
		}
		for _, report := range reports {
			slices.SortFunc(report, func(a, b changed) int { return cmp.Compare(a.UID, b.UID) })
		}
		return reports
	}
	d.equal("changes", normal(d.got, gotVersion), normal(d.want, wantVersion))
}

func (d *differential) compareStates() {
	d.Helper()
	d.equal("clusters", clusters(d, d.got), clusters(d, d.want))
	classes := func(engine search.Engine) []visibility.Class {
		found, _, err := engine.HubClasses(deadline(d))
		if err != nil {
			d.Fatalf("%s: %v", d.what, err)
		}
		return slices.SortedFunc(slices.Values(found), compareClasses)
	}
	d.equal("classes of the hub", classes(d.got), classes(d.want))
	cluster := choose(d.model, randomClusters)
	d.equal("internal properties of "+cluster, internal(d, d.got, cluster), internal(d, d.want, cluster))
}

func (d *differential) ask() {
	d.Helper()
	number := d.model.IntN(len(d.scopes))
	scope := d.scopes[number]
	switch d.model.IntN(10) {
	case 0, 1:
		request := &search.CompletionRequest{Property: choose(d.model, randomProperties[:11]), Query: d.model.query(), Now: now, Limit: choose(d.model, []int{-1, 0, 1, 5})}
		if d.model.one(3) {
			request.Prefix = choose(d.model, []string{"A", "be", "NG", "1", "2", "", "alpha="})
		}
		what := fmt.Sprintf("completion of %s with prefix %q and query %s in scope %d", request.Property, request.Prefix, request.Query.String(), number)
		d.compareCompletions(what, complete(d, d.got, scope, request), complete(d, d.want, scope, &search.CompletionRequest{
			Property: request.Property, Prefix: request.Prefix, Query: request.Query, Now: now, Limit: -1}), request.Limit)
	case 2:
		q := d.model.query()
		d.equal(fmt.Sprintf("schema of %s in scope %d", q.String(), number), schema(d, d.got, scope, q), schema(d, d.want, scope, q))
	case 3:
		uid := d.model.uid(choose(d.model, randomClusters))
		d.equal(fmt.Sprintf("get %s in scope %d", uid, number), noVersion(get(d, d.got, scope, uid)), noVersion(get(d, d.want, scope, uid)))
	default:
		d.compareSearches(scope, number, d.model.request())
	}
}

func noVersion(item *search.Item) *search.Item {
	if item == nil {
		return nil
	}
	copied := *item
	copied.Version = 0
	return &copied
}

// compareCompletions compares an answer with the wanted completion without a limit. The contract does
// not define the order of the values if only some of them are numbers.
func (d *differential) compareCompletions(what string, got, want *search.Completion, limit int) {
	d.Helper()
	numbers := 0
	for _, v := range want.Values {
		if _, is := query.ParseNumber(v.Value); is {
			numbers++
		}
	}
	if ordered := numbers == 0 || numbers == len(want.Values); ordered {
		if limit >= 0 && limit < len(want.Values) {
			want.Values, want.More = want.Values[:limit], true
		}
		if len(want.Values) == 0 && !want.More {
			got.Numbers, got.Times = false, false
		}
		d.equal(what, got, want)
		return
	}
	counts := map[string]int{}
	for _, v := range want.Values {
		counts[v.Value] = v.Count
	}
	expected := len(counts)
	if limit >= 0 {
		expected = min(limit, expected)
	}
	if len(got.Values) != expected || got.More != (expected < len(counts)) || got.Numbers || got.Times {
		d.Fatalf("%s: %s = %+v, want %d of %v", d.what, what, got, expected, counts)
	}
	for _, v := range got.Values {
		if counts[v.Value] != v.Count {
			d.Fatalf("%s: %s: count of %q = %d, want %d", d.what, what, v.Value, v.Count, counts[v.Value])
		}
		delete(counts, v.Value)
	}
}

func (d *differential) compareSearches(scope visibility.Scope, number int, request *search.Request) {
	d.Helper()
	what := fmt.Sprintf("search for %s in scope %d, order %v, limit %d, offset %d, related %t, kinds %v, depth %d, related limit %d", request.Query.String(), number,
		request.OrderBy, request.Limit, request.Offset, request.Related, request.RelatedKinds, request.RelatedDepth, request.RelatedLimit)
	unbounded := *request
	unbounded.CountLimit = -1
	got, want := find(d, d.got, scope, request), find(d, d.want, scope, &unbounded)
	d.compareCompletions(what+", counts by "+request.CountBy, &search.Completion{Values: got.Counts, More: got.MoreCounts}, &search.Completion{Values: want.Counts}, request.CountLimit)
	if got.Count != want.Count {
		all := *request
		all.Items, all.Limit, all.Offset = true, -1, 0
		d.equal(what, sorted(uidsOf(find(d, d.got, scope, &all).Items)), sorted(uidsOf(find(d, d.want, scope, &all).Items)))
		d.Fatalf("%s: %s: Count = %d, want %d", d.what, what, got.Count, want.Count)
	}
	if (got.Continue == "") != (want.Continue == "") {
		d.Fatalf("%s: %s: Continue = %q, want empty only if %q is empty", d.what, what, got.Continue, want.Continue)
	}
	switch {
	case len(request.OrderBy) > 0:
		d.equal(what, plain(got.Items), plain(want.Items))
	case request.Limit < 0 && request.Offset == 0:
		d.equal(what, byUID(got.Items), byUID(want.Items))
	default:
		d.equal(what, len(got.Items), len(want.Items))
	}
	if !request.Related {
		d.equal(what, got.Related, want.Related)
		return
	}
	if !request.RelatedItems {
		d.equal(what, got.Related, want.Related)
		return
	}
	all := *request
	all.Items, all.RelatedLimit = false, -1
	related := find(d, d.want, scope, &all).Related
	if request.Items {
		for i := range related {
			related[i].Items = relatedToAny(related[i].Items, uidsOf(got.Items))
		}
	}
	d.compareSomeRelated(what, got.Related, related, request.RelatedLimit)
}

// relatedToAny returns the items that are related to any of the given matches, and removes the UIDs
// of other matches from them.
func relatedToAny(items []search.Item, matches []string) []search.Item {
	var out []search.Item
	for _, item := range items {
		item.RelatedTo = slices.DeleteFunc(slices.Clone(item.RelatedTo), func(uid string) bool { return !slices.Contains(matches, uid) })
		if len(item.RelatedTo) > 0 {
			out = append(out, item)
		}
	}
	return out
}

// compareSomeRelated compares related items with all related items, because an engine may return any
// of them up to the limit.
func (d *differential) compareSomeRelated(what string, got, all []search.Related, limit int) {
	d.Helper()
	d.equal(what, len(got), len(all))
	for i := range got {
		d.equal(what, got[i].Kind, all[i].Kind)
		d.equal(what, got[i].Count, all[i].Count)
		expected := len(all[i].Items)
		if limit >= 0 {
			expected = min(limit, expected)
		}
		d.equal(what, len(got[i].Items), expected)
		for _, item := range byUID(got[i].Items) {
			at := slices.IndexFunc(all[i].Items, func(other search.Item) bool { return other.UID == item.UID })
			if at < 0 {
				d.Fatalf("%s: %s: related items contain %s, which is not related", d.what, what, item.UID)
			}
			d.equal(what, []search.Item{item}, byUID(all[i].Items[at:at+1]))
		}
	}
}

// plain returns items without their versions, because the contract does not define the numbers.
func plain(items []search.Item) []search.Item {
	items = slices.Clone(items)
	for i := range items {
		items[i].Version = 0
		items[i].RelatedTo = sorted(items[i].RelatedTo)
	}
	return items
}

func byUID(items []search.Item) []search.Item {
	items = plain(items)
	slices.SortFunc(items, func(a, b search.Item) int { return cmp.Compare(a.UID, b.UID) })
	return items
}
