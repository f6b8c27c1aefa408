package embedded

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"k8s.io/utils/lru"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
)

// scopeCacheSize bounds the number of scopes whose rows are cached.
const scopeCacheSize = 256

// scopes caches the rows of scopes, and updates them when they are requested.
type scopes struct {
	adding sync.Mutex
	byID   *lru.Cache
}

func newScopes() *scopes { return &scopes{byID: lru.New(scopeCacheSize)} }

// scopeRows contains the rows of one scope. One reader at a time builds them, while readers with
// other scopes do not wait.
type scopeRows struct {
	building sync.Mutex
	current  atomic.Pointer[rowsAt]
}

// rowsAt contains the rows of a scope after a number of moves.
type rowsAt struct {
	rows  *roaring.Bitmap
	moves uint64
}

// of returns the rows of a scope and the state to which they belong. It calls current again if the
// cached rows belong to a later state.
func (c *scopes) of(scope visibility.Scope, current func() *state) (*state, *roaring.Bitmap) {
	s := current()
	if scope.ID() == 0 {
		return s, roaring.New()
	}
	entry := c.entry(scope.ID())
	if at := entry.current.Load(); at != nil && at.moves == s.nextMoved() {
		return s, at.rows
	}
	entry.building.Lock()
	defer entry.building.Unlock()
	// The cached rows belong to a state that was published before this call of current.
	at := entry.current.Load()
	s = current()
	switch {
	case at != nil && at.moves == s.nextMoved():
	case at != nil && at.moves >= s.firstMoved && s.nextMoved()-at.moves < uint64(len(s.moved)/2+1024):
		at = s.follow(scope, at)
		entry.current.Store(at)
	default:
		start := time.Now()
		at = &rowsAt{rows: s.scopeRows(scope), moves: s.nextMoved()}
		entry.current.Store(at)
		scopeBuilds.Observe(time.Since(start).Seconds())
	}
	return s, at.rows
}

func (c *scopes) entry(id uint64) *scopeRows {
	c.adding.Lock()
	defer c.adding.Unlock()
	if found, ok := c.byID.Get(id); ok {
		return found.(*scopeRows)
	}
	entry := &scopeRows{}
	c.byID.Add(id, entry)
	return entry
}

// follow applies the moves since then to the rows of a scope.
func (s *state) follow(scope visibility.Scope, at *rowsAt) *rowsAt {
	rows := at.rows.Clone()
	for _, number := range s.moved[at.moves-s.firstMoved:] {
		if s.allows(scope, number) {
			rows.Add(number)
		} else {
			rows.Remove(number)
		}
	}
	return &rowsAt{rows: rows, moves: s.nextMoved()}
}

// allows reports whether a scope contains a row.
func (s *state) allows(scope visibility.Scope, number uint32) bool {
	r := s.rows.at(number)
	if r == nil || !r.exists() {
		return false
	}
	c := s.classes.at(r.class)
	decision := scope.Decide(c.class)
	return decision.All || len(decision.Names) > 0 && hasName(decision.Names, s.nameOf(r.data))
}

func hasName(sorted []string, name string) bool {
	_, found := slices.BinarySearch(sorted, name)
	return found
}

// scopeRows returns the rows of a scope.
func (s *state) scopeRows(scope visibility.Scope) *roaring.Bitmap {
	size := (s.rows.len() + 63) / 64
	rows, spare := make(dense, size), make(dense, size)
	everywhere := scope.AllClusters()
	for _, c := range s.clusters {
		switch {
		case c.hub && scope.WholeHub():
			rows.addRows(&c.rows, nil)
			continue
		case !c.hub && (everywhere || scope.Cluster(c.name)):
			rows.addRows(&c.rows, nil)
			rows.removeRows(&c.secrets)
		default:
			s.addClasses(scope, c.classes, rows, spare)
		}
		s.addClasses(scope, c.secretClasses, rows, spare)
	}
	return roaring.FromDense(rows, false)
}

// addClasses adds the rows of classes that a scope contains.
func (s *state) addClasses(scope visibility.Scope, classes []uint32, rows, spare dense) {
	for _, id := range classes {
		c := s.classes.at(id)
		decision := scope.Decide(c.class)
		switch {
		case decision.All:
			rows.addRows(&c.rows, spare)
		case len(decision.Names) > 0:
			c.rows.each(func(number uint32) bool {
				if hasName(decision.Names, s.nameOf(s.rows.at(number).data)) {
					rows.set(number)
				}
				return true
			})
		}
	}
}
