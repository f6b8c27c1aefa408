package accessreview

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
)

const (
	// capacity is the maximum number of cached questions of all accounts.
	capacity = 100_000
	// deniedAge is the maximum age of a denial. Authorizers other than RBAC cannot be watched.
	deniedAge = 30 * time.Second
	// unwatchedAge is the maximum age of an answer while RBAC is not watched.
	unwatchedAge = 10 * time.Second
	// unaskedAge is the time after which an account is no longer notified of changes to an invalid
	// answer, unless it has asked again.
	unaskedAge = 10 * time.Minute
)

// topic is the subject of a question.
type topic int

const (
	// aboutRequest asks for the decision on a request.
	aboutRequest topic = iota
	// aboutRules asks for the rules of the account in the namespace of the request.
	aboutRules
	// aboutRole asks for the rules of the role that the request names.
	aboutRole
)

// question is a question about one account.
type question struct {
	topic   topic
	request Request
}

// answer is the answer to a question. An invalidated answer is kept, because it also records that
// the account is notified of changes.
type answer struct {
	// decision is valid only for a question about a request.
	decision Decision
	// asked is the time of the question.
	asked time.Time
	// watched is set if RBAC was watched at that time.
	watched bool
	// invalidated is the time since which the decision is invalid; zero if it is valid.
	invalidated time.Time
}

// holds reports whether the decision is valid now. If maxAge is 0, an allowed answer may have any
// age.
func (a *answer) holds(now time.Time, maxAge time.Duration, watching bool) bool {
	if a == nil || !a.invalidated.IsZero() {
		return false
	}
	age := now.Sub(a.asked)
	if !a.decision.Allowed && age > deniedAge || a.decision.Allowed && maxAge > 0 && age > maxAge {
		return false
	}
	return watching && a.watched || age <= unwatchedAge
}

// invalidate makes the decision invalid. It reports whether the account is still notified
// of changes.
func (a *answer) invalidate(now time.Time) bool {
	if !a.invalidated.IsZero() {
		return now.Sub(a.invalidated) <= unaskedAge
	}
	a.invalidated = now
	return true
}

// memory is the cached state of one account.
type memory struct {
	// answers are grouped by the namespace of the request.
	answers map[string]map[question]*answer
	// flights are the reviews in flight.
	flights map[Request]*flight
	// slots limits the parallel reviews of the account.
	slots chan struct{}
	// lost is set once an answer was evicted.
	lost bool
}

type memoryKey struct {
	account  types.NamespacedName
	question question
}

// cache is the cached state of all accounts. Callers synchronize access.
type cache struct {
	accounts map[types.NamespacedName]*memory
	recent   *lru.Cache
}

func newCache(size int) *cache {
	c := &cache{accounts: map[types.NamespacedName]*memory{}}
	c.recent = lru.NewWithEvictionFunc(size, func(key lru.Key, _ any) {
		evicted := key.(memoryKey)
		if m := c.accounts[evicted.account]; m != nil && m.drop(evicted.question) {
			m.lost = true
		}
	})
	return c
}

// of returns the memory of an account. It creates the memory if none exists.
func (c *cache) of(account types.NamespacedName) *memory {
	m := c.accounts[account]
	if m == nil {
		m = &memory{answers: map[string]map[question]*answer{}, flights: map[Request]*flight{}, slots: make(chan struct{}, parallelism)}
		c.accounts[account] = m
	}
	return m
}

// get returns the answer to a question, or nil.
func (c *cache) get(account types.NamespacedName, q question) *answer {
	found, ok := c.recent.Get(memoryKey{account, q})
	if !ok {
		return nil
	}
	return found.(*answer)
}

// put stores an answer. The account must have a memory.
func (c *cache) put(account types.NamespacedName, q question, a *answer) {
	m := c.accounts[account]
	if m.answers[q.request.Namespace] == nil {
		m.answers[q.request.Namespace] = map[question]*answer{}
	}
	m.answers[q.request.Namespace][q] = a
	c.recent.Add(memoryKey{account, q}, a)
}

// remove removes a question.
func (c *cache) remove(account types.NamespacedName, q question) {
	// drop must run before the eviction function. Otherwise, that function sets lost.
	c.accounts[account].drop(q)
	c.recent.Remove(memoryKey{account, q})
}

// forget removes an account.
func (c *cache) forget(account types.NamespacedName) {
	m := c.accounts[account]
	if m == nil {
		return
	}
	for _, answers := range m.answers {
		for q := range answers {
			c.remove(account, q)
		}
	}
	delete(c.accounts, account)
}

// tidy removes an account without state. An account that lost answers stays, because it
// must be notified of changes to them.
func (c *cache) tidy(account types.NamespacedName) {
	if m := c.accounts[account]; m != nil && !m.lost && len(m.answers) == 0 && len(m.flights) == 0 {
		delete(c.accounts, account)
	}
}

func (m *memory) drop(q question) bool {
	answers := m.answers[q.request.Namespace]
	_, known := answers[q]
	delete(answers, q)
	if len(answers) == 0 {
		delete(m.answers, q.request.Namespace)
	}
	return known
}
