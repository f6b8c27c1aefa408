package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// neighbor is what is known of a node that was reached.
type neighbor struct {
	kind string
	// origins are the matches that it was reached from, where they are wanted.
	origins []int32
}

// stops tells whether paths do not go on from a kind.
func stops(kind string) bool { return kind == "Node" || kind == "Channel" }

// walk goes along edges from all matches at once, level by level. Nodes are of type N.
type walk[N comparable] struct {
	// origins are the matches, and matches where in origins they are.
	origins []N
	matches map[N]int32
	// reached are the nodes in the scope that were found, matches among them.
	reached map[N]*neighbor
	// traced is true if the origins of what is reached are wanted.
	traced bool
	// edges calls for each edge from or to nodes.
	edges func(ctx context.Context, nodes []N, call func(source, dest N)) error
	// kinds calls for each of the nodes that is a resource in the scope.
	kinds func(ctx context.Context, nodes []N, call func(at N, kind string)) error
}

func newWalk[N comparable](matches []N, traced bool) *walk[N] {
	w := &walk[N]{origins: matches, matches: make(map[N]int32, len(matches)), reached: map[N]*neighbor{}, traced: traced}
	for i, match := range matches {
		w.matches[match] = int32(i)
	}
	return w
}

// level is a set of nodes, each with the origins that it was reached from; without, where they do not matter.
type level[N comparable] map[N]map[int32]struct{}

// run follows edges in both directions, up to a depth from each match. What matches is passed
// through as anything else.
func (w *walk[N]) run(ctx context.Context, depth int) error {
	current, seen := level[N]{}, level[N]{}
	for i, at := range w.origins {
		current[at], seen[at] = nil, nil
		if w.traced {
			current[at], seen[at] = map[int32]struct{}{int32(i): {}}, map[int32]struct{}{int32(i): {}}
		}
	}
	for step := 0; step < depth && len(current) > 0; step++ {
		next := level[N]{}
		err := w.neighbors(ctx, current, func(from, to N) {
			if w.traced {
				pass(current[from], to, seen, next)
			} else if _, was := seen[to]; !was {
				seen[to], next[to] = nil, nil
			}
		})
		if err != nil {
			return err
		}
		maps.DeleteFunc(next, func(at N, _ map[int32]struct{}) bool { return stops(w.reached[at].kind) })
		current = next
	}
	if w.traced {
		for at, one := range w.reached {
			one.origins = slices.Collect(maps.Keys(seen[at]))
		}
	}
	return nil
}

// pass hands the origins of a node on to a neighbor, those that have not been there.
func pass[N comparable](origins map[int32]struct{}, to N, seen, next level[N]) {
	for origin := range origins {
		if _, was := seen[to][origin]; was {
			continue
		}
		if seen[to] == nil {
			seen[to] = map[int32]struct{}{}
		}
		seen[to][origin] = struct{}{}
		if next[to] == nil {
			next[to] = map[int32]struct{}{}
		}
		next[to][origin] = struct{}{}
	}
}

// neighbors calls for each edge between a node of the level and a resource in the scope.
func (w *walk[N]) neighbors(ctx context.Context, current level[N], call func(from, to N)) error {
	type pair struct{ from, to N }
	var pairs []pair
	unknown := map[N]struct{}{}
	add := func(from, to N) {
		if _, is := current[from]; !is {
			return
		}
		pairs = append(pairs, pair{from, to})
		if w.reached[to] == nil {
			unknown[to] = struct{}{}
		}
	}
	err := w.edges(ctx, slices.Collect(maps.Keys(current)), func(source, dest N) {
		add(source, dest)
		add(dest, source)
	})
	if err != nil {
		return fmt.Errorf("edges: %w", err)
	}
	err = w.kinds(ctx, slices.Collect(maps.Keys(unknown)), func(at N, kind string) { w.reached[at] = &neighbor{kind: kind} })
	if err != nil {
		return err
	}
	for _, one := range pairs {
		if w.reached[one.to] != nil {
			call(one.from, one.to)
		}
	}
	return nil
}

// related are the nodes that are related to a match and none themselves, by kind, and their numbers in the
// order of kinds.
func (w *walk[N]) related(kinds []string) (map[string][]N, []search.Related) {
	byKind := map[string][]N{}
	for at, one := range w.reached {
		if _, match := w.matches[at]; !match && wantedKind(kinds, one.kind) {
			byKind[one.kind] = append(byKind[one.kind], at)
		}
	}
	var related []search.Related
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		related = append(related, search.Related{Kind: kind, Count: len(byKind[kind])})
	}
	return byKind, related
}

func wantedKind(kinds []string, kind string) bool {
	return len(kinds) == 0 || slices.ContainsFunc(kinds, func(k string) bool { return strings.EqualFold(k, kind) })
}

// relatedTo are the UIDs of the matches that a node was reached from, in order.
func (w *walk[N]) relatedTo(at N, uid func(N) string) []string {
	var uids []string
	for _, origin := range w.reached[at].origins {
		uids = append(uids, uid(w.origins[origin]))
	}
	slices.Sort(uids)
	return uids
}
