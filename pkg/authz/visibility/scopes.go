package visibility

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/lru"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// interests are notified when the Scope of an identity may have changed: the cached Scopes by a change on the hub, or on
// managed clusters, and subscribers by both. Subscribers are the last, because they read the Scope again.
type interests struct{ hub, managed, subscribers rbac.Interests }

func (i *interests) touchHub(concerned []rbac.Subject) {
	i.hub.Touch(concerned)
	i.subscribers.Touch(concerned)
}

// touchManaged notifies of changes on a managed cluster.
func (i *interests) touchManaged(concerned []rbac.Subject) {
	concerned = slices.DeleteFunc(slices.Clone(concerned), local)
	i.managed.Touch(concerned)
	i.subscribers.Touch(concerned)
}

func (i *interests) touchAll() {
	i.hub.TouchAll()
	i.subscribers.TouchAll()
}

// scopes caches the Scopes of identities.
type scopes struct {
	interests *interests

	mu      sync.Mutex
	entries *lru.Cache
	// byContent caches permissions by fingerprint. Callers with the same permissions
	// share one Scope, so that engines share their caches.
	byContent *lru.Cache
}

// entry is the cached state of one identity.
type entry struct {
	identity *user.DefaultInfo
	// hub and managed are registered in the interests.
	hub, managed *rbac.Interest
	// turn serializes the computation of the Scope.
	turn chan struct{}
	// changes counts the events that may have changed the Scope, and hubChanges those of them that concern the hub. Both
	// are read in this order, and written in the opposite one.
	changes, hubChanges atomic.Uint64
	// dropped is set when changes are no longer counted.
	dropped atomic.Bool
	found   atomic.Pointer[finding]
}

// finding is a computed Scope and its validity.
type finding struct {
	allowed *allowed
	// changes and hubChanges are the counts of changes that the finding takes into account.
	changes, hubChanges uint64
	// answers is set if the finding comes from reviews. It is valid until expires.
	answers *answers
	expires time.Time
}

func newScopes(size int, interests *interests) *scopes {
	s := &scopes{interests: interests, byContent: lru.New(size)}
	s.entries = lru.NewWithEvictionFunc(size, func(_ lru.Key, value any) {
		e := value.(*entry)
		e.dropped.Store(true)
		interests.hub.Remove(e.hub)
		interests.managed.Remove(e.managed)
	})
	return s
}

// entry returns the entry of an identity, creating it if there is none.
func (s *scopes) entry(identity user.Info) *entry {
	key := identityKey(identity)
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, found := s.entries.Get(key); found {
		return known.(*entry)
	}
	e := &entry{identity: copied(identity), turn: make(chan struct{}, 1)}
	e.hub = &rbac.Interest{Subjects: hubSubjects(identity), Touched: func() {
		e.hubChanges.Add(1)
		e.changes.Add(1)
	}}
	e.managed = &rbac.Interest{Subjects: e.hub.Subjects, Touched: func() { e.changes.Add(1) }}
	// Changes must be counted before anything is read.
	s.interests.hub.Add(e.hub)
	s.interests.managed.Add(e.managed)
	s.entries.Add(key, e)
	cachedScopes.Set(float64(s.entries.Len()))
	return e
}

// numbered returns the cached permissions with the same content, or assigns a new ID.
func (s *scopes) numbered(a *allowed) *allowed {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, found := s.byContent.Get(a.fingerprint); found {
		return known.(*allowed)
	}
	a.numbered()
	s.byContent.Add(a.fingerprint, a)
	return a
}
