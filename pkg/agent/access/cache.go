package access

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
)

const (
	// capacity is how many questions are remembered over all accounts.
	capacity = 100_000
	// deniedAge is how long a denial holds at most: what authorizers other than
	// RBAC allow is not watched.
	deniedAge = 30 * time.Second
	// unwatchedAge is how long an answer holds at most while RBAC is not watched.
	unwatchedAge = 10 * time.Second
	// unaskedAge is for how long an account is told of changes of an answer that it
	// has not asked for again: whatever it was for is gone then.
	unaskedAge = 10 * time.Minute
)

// topic is what a question is about.
type topic int

const (
	// aboutRequest is whether a request is allowed.
	aboutRequest topic = iota
	// aboutRules is what rules the account has in the namespace of the request.
	aboutRules
	// aboutRole is what rules the role has that the request names.
	aboutRole
)

// question is what was asked about one account.
type question struct {
	topic   topic
	request Request
}

// answer is what is known about a question. It outlives its truth, since it also
// says that somebody wants to know of changes.
type answer struct {
	// decision is meaningless unless the question is about a request.
	decision Decision
	// asked is when the question was put.
	asked time.Time
	// watched is whether RBAC was watched then.
	watched bool
	// forgotten is since when the decision does not hold; zero if it does.
	forgotten time.Time
}

// holds reports whether the decision may be used now. Allowed answers may be of
// any age if maxAge is 0.
func (a *answer) holds(now time.Time, maxAge time.Duration, watching bool) bool {
	if a == nil || !a.forgotten.IsZero() {
		return false
	}
	age := now.Sub(a.asked)
	if !a.decision.Allowed && age > deniedAge || a.decision.Allowed && maxAge > 0 && age > maxAge {
		return false
	}
	return watching && a.watched || age <= unwatchedAge
}

// forget makes the decision unusable. It reports whether somebody still wants to
// know of changes.
func (a *answer) forget(now time.Time) bool {
	if !a.forgotten.IsZero() {
		return now.Sub(a.forgotten) <= unaskedAge
	}
	a.forgotten = now
	return true
}

// memory is what is remembered of one account.
type memory struct {
	// answers are by the namespace of the request.
	answers map[string]map[question]*answer
	// flights are the reviews that are under way.
	flights map[Request]*flight
	// slots are taken by reviews about the account that are under way.
	slots chan struct{}
	// lost is whether answers were given up for lack of room.
	lost bool
}

type memoryKey struct {
	account  types.NamespacedName
	question question
}

// cache is what is remembered of all accounts. Its user serializes calls.
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

// of returns the memory of an account, which is made if there is none.
func (c *cache) of(account types.NamespacedName) *memory {
	m := c.accounts[account]
	if m == nil {
		m = &memory{answers: map[string]map[question]*answer{}, flights: map[Request]*flight{}, slots: make(chan struct{}, parallelism)}
		c.accounts[account] = m
	}
	return m
}

// get returns what is known about a question; nil if nothing is.
func (c *cache) get(account types.NamespacedName, q question) *answer {
	found, ok := c.recent.Get(memoryKey{account, q})
	if !ok {
		return nil
	}
	return found.(*answer)
}

// put remembers an answer. The account must have a memory.
func (c *cache) put(account types.NamespacedName, q question, a *answer) {
	m := c.accounts[account]
	if m.answers[q.request.Namespace] == nil {
		m.answers[q.request.Namespace] = map[question]*answer{}
	}
	m.answers[q.request.Namespace][q] = a
	c.recent.Add(memoryKey{account, q}, a)
}

// remove forgets a question, and that it was asked.
func (c *cache) remove(account types.NamespacedName, q question) {
	// Out of the account first: what is evicted without being there was not lost
	// for lack of room.
	c.accounts[account].drop(q)
	c.recent.Remove(memoryKey{account, q})
}

// forget forgets an account.
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

// tidy forgets an account of which nothing is remembered, and nothing was that it
// might still want to know of.
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
