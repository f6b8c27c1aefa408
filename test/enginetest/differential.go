package enginetest

import (
	"cmp"
	"flag"
	"fmt"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/test/seed"
)

const (
	// differentialRuns is the number of random runs, each of about differentialSteps steps.
	differentialRuns  = 8
	differentialSteps = 150
)

// testDifferential applies the same random reports to an engine and to the oracle, sends both the same random
// requests, and checks that the answers are equal. If they differ, it prints the shortest run that it finds.
func testDifferential(t *testing.T, open func(t *testing.T) search.Engine) {
	for name, value := range map[string]any{
		"seed": seed.Of(t), "checks": differentialRuns, "steps": differentialSteps, "nofailfile": true,
	} {
		if err := flag.Set("rapid."+name, fmt.Sprint(value)); err != nil {
			t.Fatal(err)
		}
	}
	got := open(t)
	rapid.Check(t, func(t *rapid.T) {
		d := &differential{T: t, got: got, want: newOracle()}
		// Each run reuses the engine, because opening one takes long.
		for _, cluster := range randomClusters {
			if err := got.RemoveCluster(deadline(t), cluster); err != nil {
				t.Fatal(err)
			}
		}
		d.scopes = []visibility.Scope{everything(), {}, d.scope(), d.scope()}
		t.Repeat(map[string]func(*rapid.T){
			"report": d.report, "search": d.search, "search again": d.search, "pages": d.pages, "completion": d.complete, "look": d.look,
			"scope": func(*rapid.T) { d.scopes[rapid.IntRange(2, 3).Draw(t, "scope")] = d.scope() },
		})
	})
}

type differential struct {
	*rapid.T
	got     search.Engine
	want    *oracle
	scopes  []visibility.Scope
	reports int
}

// equal ends the run if two answers differ.
func (d *differential) equal(what string, got, want any) {
	d.Helper()
	if difference := gocmp.Diff(want, got, Comparing); difference != "" {
		d.Fatalf("%s (-want +got):\n%s", what, difference)
	}
}

func (d *differential) scope() visibility.Scope {
	return scopeOf(d, draw(d.T, "policy", random.policy))
}

// anyScope draws one of the scopes.
func (d *differential) anyScope() (number int, scope visibility.Scope) {
	number = rapid.IntRange(0, len(d.scopes)-1).Draw(d.T, "scope")
	return number, d.scopes[number]
}

// report removes a cluster, or applies a report and another change, so that the last version has a change.
func (d *differential) report(*rapid.T) {
	gotVersion, wantVersion := version(d, d.got), d.want.version
	if draw(d.T, "remove", func(r random) bool { return r.one(25) }) {
		cluster := rapid.SampledFrom(randomClusters).Draw(d.T, "cluster")
		for _, engine := range []search.Engine{d.got, d.want} {
			if err := engine.RemoveCluster(deadline(d), cluster); err != nil {
				d.Fatalf("RemoveCluster(%s): %v", cluster, err)
			}
		}
	} else {
		report := draw(d.T, "report", func(r random) *search.Report { return r.report(d.want.clusters) })
		got, want := apply(d, d.got, report), apply(d, d.want, report)
		d.equal(fmt.Sprintf("Apply(%+v)", *report), withoutVersion(got), withoutVersion(want))
	}
	d.reports++
	mark := delta(d, randomClusters[1], object{"marked", fmt.Sprintf(`{"kind":"Mark","name":"mark","round":%d}`, d.reports)})
	apply(d, d.got, mark)
	apply(d, d.want, mark)
	d.compareChanges(gotVersion, wantVersion)
	d.compareStates()
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
			d.Fatal(err)
		}
		return slices.SortedFunc(slices.Values(found), compareClasses)
	}
	d.equal("classes of the hub", classes(d.got), classes(d.want))
	cluster := rapid.SampledFrom(randomClusters).Draw(d.T, "cluster")
	d.equal("internal properties of "+cluster, internal(d, d.got, cluster), internal(d, d.want, cluster))
}

func (d *differential) complete(*rapid.T) {
	number, scope := d.anyScope()
	request := draw(d.T, "request", random.completion)
	what := fmt.Sprintf("completion of %s with prefix %q and query %s in scope %d", request.Property, request.Prefix, fmt.Sprint(request.Query), number)
	unbounded := *request
	unbounded.Limit = -1
	d.compareCompletions(what, complete(d, d.got, scope, request), complete(d, d.want, scope, &unbounded), request.Limit)
}

// look reads the schema and one resource.
func (d *differential) look(*rapid.T) {
	number, scope := d.anyScope()
	q := draw(d.T, "query", random.query)
	d.equal(fmt.Sprintf("schema of %s in scope %d", fmt.Sprint(q), number), schema(d, d.got, scope, q), schema(d, d.want, scope, q))
	uid := draw(d.T, "uid", func(r random) string { return r.uid(choose(r, randomClusters)) })
	d.equal(fmt.Sprintf("get %s in scope %d", uid, number), noVersion(get(d, d.got, scope, uid)), noVersion(get(d, d.want, scope, uid)))
}

// pages reads all pages of a search.
func (d *differential) pages(*rapid.T) {
	number, scope := d.anyScope()
	request := draw(d.T, "request", func(r random) *search.Request {
		return &search.Request{Query: r.query(), Now: now, Items: true, Limit: 1 + r.IntN(9), OrderBy: r.orders()}
	})
	whole := *request
	whole.Limit = -1
	want := find(d, d.want, scope, &whole).Items
	var got []search.Item
	for len(got) <= len(want) {
		page := find(d, d.got, scope, request)
		got = append(got, page.Items...)
		if request.Continue = page.Continue; request.Continue == "" {
			break
		}
	}
	what := fmt.Sprintf("pages of %s in scope %d, order %v, limit %d", fmt.Sprint(request.Query), number, request.OrderBy, request.Limit)
	if len(request.OrderBy) > 0 {
		d.equal(what, plain(got), plain(want))
	} else {
		d.equal(what, byUID(got), byUID(want))
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
		d.Fatalf("%s = %+v, want %d of %v", what, got, expected, counts)
	}
	for _, v := range got.Values {
		if counts[v.Value] != v.Count {
			d.Fatalf("%s: count of %q = %d, want %d", what, v.Value, v.Count, counts[v.Value])
		}
		delete(counts, v.Value)
	}
}

func (d *differential) search(*rapid.T) {
	number, scope := d.anyScope()
	request := draw(d.T, "request", random.request)
	what := fmt.Sprintf("search for %s in scope %d, order %v, limit %d, offset %d, related %t, kinds %v, depth %d, related limit %d", fmt.Sprint(request.Query), number,
		request.OrderBy, request.Limit, request.Offset, request.Related, request.RelatedKinds, request.RelatedDepth, request.RelatedLimit)
	unbounded := *request
	unbounded.CountLimit = -1
	got, want := find(d, d.got, scope, request), find(d, d.want, scope, &unbounded)
	d.compareCompletions(what+", counts by "+request.CountBy, &search.Completion{Values: got.Counts, More: got.MoreCounts}, &search.Completion{Values: want.Counts}, request.CountLimit)
	if got.Count != want.Count {
		all := *request
		all.Items, all.Limit, all.Offset = true, -1, 0
		d.equal(what, sorted(uidsOf(find(d, d.got, scope, &all).Items)), sorted(uidsOf(find(d, d.want, scope, &all).Items)))
		d.Fatalf("%s: Count = %d, want %d", what, got.Count, want.Count)
	}
	if (got.Continue == "") != (want.Continue == "") {
		d.Fatalf("%s: Continue = %q, want empty only if %q is empty", what, got.Continue, want.Continue)
	}
	switch {
	case len(request.OrderBy) > 0:
		d.equal(what, plain(got.Items), plain(want.Items))
	case request.Limit < 0 && request.Offset == 0:
		d.equal(what, byUID(got.Items), byUID(want.Items))
	default:
		d.equal(what, len(got.Items), len(want.Items))
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
				d.Fatalf("%s: related items contain %s, which is not related", what, item.UID)
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
