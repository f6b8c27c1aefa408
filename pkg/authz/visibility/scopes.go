package visibility

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/lru"
)

// scopes keeps what was found out for callers, each whole identity by itself, as
// many as there is room for.
type scopes struct {
	interests *interests

	mu      sync.Mutex
	entries *lru.Cache
	// byContent has what was compiled by its fingerprint: who may find the same gets
	// the same Scope, so that engines derive what they need once.
	byContent *lru.Cache
}

// entry is what is known for one identity.
type entry struct {
	identity *user.DefaultInfo
	interest *interest
	// turn holds one value while someone finds out the scope; others wait for it.
	turn chan struct{}
	// changes counts what may have changed the scope.
	changes atomic.Uint64
	// dropped is set when changes are not counted any more.
	dropped atomic.Bool
	found   atomic.Pointer[finding]
}

// finding is what was found out for an identity, and until when it holds.
type finding struct {
	allowed *allowed
	// changes are those that it takes into account.
	changes uint64
	// answers is set if the hub was asked; they hold until expires.
	answers *answers
	expires time.Time
}

func newScopes(size int, interests *interests) *scopes {
	s := &scopes{interests: interests, byContent: lru.New(size)}
	s.entries = lru.NewWithEvictionFunc(size, func(_ lru.Key, value any) {
		if e, ok := value.(*entry); ok {
			e.dropped.Store(true)
			interests.remove(e.interest)
		}
	})
	return s
}

// entry returns that of an identity, which is there from now on.
func (s *scopes) entry(identity user.Info) *entry {
	key := identityKey(identity)
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, found := s.entries.Get(key); found {
		if e, ok := known.(*entry); ok {
			return e
		}
	}
	e := &entry{identity: copied(identity), turn: make(chan struct{}, 1)}
	e.interest = &interest{subjects: hubSubjects(identity), touched: func() { e.changes.Add(1) }}
	// Changes count from before anything is read.
	s.interests.add(e.interest)
	s.entries.Add(key, e)
	cachedScopes.Set(float64(s.entries.Len()))
	return e
}

// numbered gives what was compiled the ID of what is equal, if that is known still.
func (s *scopes) numbered(a *allowed) *allowed {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, found := s.byContent.Get(a.fingerprint); found {
		if same, ok := known.(*allowed); ok {
			return same
		}
	}
	a.numbered()
	s.byContent.Add(a.fingerprint, a)
	return a
}
