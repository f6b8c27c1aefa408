package watch_test

import (
	"fmt"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/watch"
	"open-cluster-management.io/hub-apiserver/test/seed"
)

// TestEventsMatchSearch changes resources and permissions at random. It checks that the state that
// results from the events of a watch equals the result of a search.
func TestEventsMatchSearch(t *testing.T) {
	for n := range 10 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := seed.Rand(t)
			engine := open(t)
			choices := []visibility.Scope{
				{}, seesClusters(t, "east"), seesClusters(t, "west"), seesClusters(t, "east", "west"),
			}
			granted := newScopes(choices[3])
			change := func() {
				cluster := []string{"east", "west"}[r.IntN(2)]
				name := fmt.Sprint("pod-", r.IntN(12))
				if r.IntN(4) > 0 {
					name += fmt.Sprintf(` {"status":%q,"restarts":%d}`, []string{"Running", "Failed"}[r.IntN(2)], r.IntN(100))
				}
				put(t, engine, cluster, name)
			}
			for range 30 {
				change()
			}
			q := looksFor(t, "status:Running")
			from, err := engine.Version(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			kept := map[string]string{}
			config := watch.Config{Engine: engine, Scopes: granted, User: jane, Query: q}
			if n%2 == 0 {
				config.Initial = true
			} else {
				config.From = from
				for _, item := range found(t, engine, choices[3], config) {
					kept[item.UID] = string(item.JSON())
				}
				for range 20 {
					change()
				}
			}
			w := start(t, config)
			// A revocation before the start of the watch causes no event, so wait for the start.
			<-granted.asked
			for range 400 {
				switch r.IntN(12) {
				case 0:
					granted.set(choices[r.IntN(len(choices))], nil)
				case 1, 2, 3:
					select {
					case event := <-w.Events():
						apply(t, kept, event)
					default:
					}
				default:
					change()
				}
			}
			// Events are in order, so the last change follows all events of a listing.
			granted.set(choices[3], nil)
			put(t, engine, "east", `last {"status":"Running"}`)
			for kept["east/last"] == "" {
				apply(t, kept, w.next())
			}
			put(t, engine, "east", "last")
			for kept["east/last"] != "" {
				apply(t, kept, w.next())
			}
			want := map[string]string{}
			for _, item := range found(t, engine, choices[3], config) {
				want[item.UID] = string(item.JSON())
			}
			for uid, properties := range want {
				if kept[uid] != properties {
					t.Errorf("Search() found %s with %s, the watch sent %s, want equal properties", uid, properties, kept[uid])
				}
			}
			for uid := range kept {
				if want[uid] == "" {
					t.Errorf("Search() does not find %s, but the watch sent no Deleted event, want one", uid)
				}
			}
		})
	}
}

func apply(t *testing.T, kept map[string]string, event watch.Event) {
	t.Helper()
	_, known := kept[event.Item.UID]
	if event.Type != watch.Bookmark && known != (event.Type != watch.Added) {
		t.Errorf("%s event for %s, known to the client = %t, want Added only for unknown items", event.Type, event.Item.UID, known)
	}
	switch event.Type {
	case watch.Added, watch.Modified:
		kept[event.Item.UID] = string(event.Item.JSON())
	case watch.Deleted:
		delete(kept, event.Item.UID)
	}
}

func found(t *testing.T, engine search.Engine, scope visibility.Scope, config watch.Config) []search.Item {
	t.Helper()
	result, err := engine.Search(t.Context(), scope, &search.Request{Query: config.Query, Items: true, Limit: -1})
	if err != nil {
		t.Fatal(err)
	}
	return result.Items
}
