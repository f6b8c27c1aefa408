package enginetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

func testPaging(t *testing.T, open func(t *testing.T) search.Engine) {
	engine := open(t)
	const count = 97
	report := &search.Report{Cluster: "c", Full: true, Time: now}
	for i := range count {
		o := object{fmt.Sprintf("%03d", i*61%count), fmt.Sprintf(`{"kind":"Pod","name":"pod-%d"}`, i)}
		report.Put = append(report.Put, delta(t, "c", o).Put...)
	}
	apply(t, engine, report)
	var every []string
	for i := range report.Put {
		every = append(every, report.Put[i].UID)
	}
	every = sorted(every)
	t.Run("OffsetBeyondTheEnd", func(t *testing.T) {
		result := find(t, engine, everything(), &search.Request{Items: true, Limit: 10, Offset: 1 << 40})
		if len(result.Items) > 0 || result.Continue != "" || result.Count != count {
			t.Errorf("Search() with an offset after the end: items %v, Continue %q, Count %d, want no items and Count %d", uidsOf(result.Items), result.Continue, result.Count, count)
		}
	})
	t.Run("InvalidTokensAreRejected", func(t *testing.T) {
		for _, token := range []string{"x", "AAAA", "\x00", "eyJhIjoxfQ", "9999999999:9", "'; --"} {
			_, err := engine.Search(deadline(t), everything(), &search.Request{Items: true, Limit: 1, Continue: token, Now: now})
			if !errors.Is(err, search.ErrExpired) {
				t.Errorf("Search() with token %q: error %v, want ErrExpired", token, err)
			}
		}
	})
	t.Run("TokensDoNotWidenTheScope", func(t *testing.T) {
		token := find(t, engine, everything(), &search.Request{Items: true, Limit: 10}).Continue
		result, err := engine.Search(deadline(t), scopeOf(t, ""), &search.Request{Items: true, Limit: 10, Continue: token, Now: now})
		if err != nil && !errors.Is(err, search.ErrExpired) {
			t.Fatal(err)
		}
		if err == nil && (len(result.Items) > 0 || result.Count > 0) {
			t.Errorf("Search() with the token of another caller: Count = %d, want 0", result.Count)
		}
	})
	t.Run("ChangesBetweenPages", func(t *testing.T) { pageUnderChange(t, engine, every) })
}

// pageUnderChange reads pages while resources are added and deleted. Either the pages contain each
// permanent resource exactly once, or the token expires.
func pageUnderChange(t *testing.T, engine search.Engine, staying []string) {
	t.Helper()
	for _, orderBy := range [][]search.Order{nil, {{Property: "name"}}} {
		var paged []string
		token, expired := "", false
		for page := 0; page <= 2*len(staying); page++ {
			result, err := engine.Search(deadline(t), everything(), &search.Request{Items: true, Limit: 5, Continue: token, OrderBy: orderBy, Now: now})
			if expired = errors.Is(err, search.ErrExpired); expired {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			paged = append(paged, uidsOf(result.Items)...)
			if token = result.Continue; token == "" {
				break
			}
			change := delta(t, "c", object{fmt.Sprintf("new-%d", page), fmt.Sprintf(`{"kind":"Pod","name":"a-%d"}`, page)})
			change.Delete = []string{fmt.Sprintf("c/new-%d", page-1)}
			apply(t, engine, change)
		}
		if expired {
			continue
		}
		kept := slices.DeleteFunc(paged, func(uid string) bool { _, found := slices.BinarySearch(staying, uid); return !found })
		same(t, fmt.Sprintf("permanent resources in all pages by %v", orderBy), sorted(kept), staying)
	}
}
