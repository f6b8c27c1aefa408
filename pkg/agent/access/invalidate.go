package access

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// rulePair is what an account has by one binding before and after an event.
type rulePair struct {
	namespace     string
	before, after *ruleSet
}

// effect is what an event is to accounts. It remembers what it worked out, since
// many questions are about the same rules.
type effect struct {
	event
	differing map[rulePair]bool
	grants    map[*ruleSet]map[action]grant
}

func newEffect(e event) *effect {
	return &effect{event: e, differing: map[rulePair]bool{}, grants: map[*ruleSet]map[action]grant{}}
}

// on returns how an account is better or worse off after the event.
func (e *effect) on(account types.NamespacedName) map[rulePair]bool {
	pairs := map[rulePair]bool{}
	for _, c := range e.changes {
		pair := rulePair{namespace: c.namespace, before: c.before.of(account), after: c.after.of(account)}
		differs, known := e.differing[pair]
		if !known {
			differs = !pair.before.equal(pair.after)
			e.differing[pair] = differs
		}
		if differs {
			pairs[pair] = true
		}
	}
	return pairs
}

// decides reports whether the answer to a question may be another now. The pair
// is of the namespace of the question.
func (e *effect) decides(pair rulePair, q question) bool {
	switch q.topic {
	case aboutRules:
		return true
	case aboutRequest:
		return e.allows(pair.before, q.request) != e.allows(pair.after, q.request)
	default:
		return false
	}
}

func (e *effect) allows(rules *ruleSet, request Request) bool {
	if rules == nil {
		return false
	}
	grants := e.grants[rules]
	if grants == nil {
		grants = map[action]grant{}
		e.grants[rules] = grants
	}
	of := actionOf(request)
	g, known := grants[of]
	if !known {
		g = grantOf(rules.rules, of)
		grants[of] = g
	}
	return g.allows(request.Name)
}

// concerns reports whether the event may decide a request of an account.
func (e *effect) concerns(account types.NamespacedName, request Request) bool {
	for pair := range e.on(account) {
		if (pair.namespace == "" || pair.namespace == request.Namespace) && e.decides(pair, question{request: request}) {
			return true
		}
	}
	return false
}

// apply forgets the answers that an effect may have made wrong. It returns the
// accounts that should ask again.
func (c *cache) apply(e *effect, now time.Time) []types.NamespacedName {
	var concerned []types.NamespacedName
	for account, m := range c.accounts {
		pairs := e.on(account)
		// What an account without room for its answers would have asked is not known.
		tell := m.lost && len(pairs) > 0
		for pair := range pairs {
			matches := func(q question) bool { return e.decides(pair, q) }
			if pair.namespace != "" {
				tell = c.forgetAnswers(account, pair.namespace, matches, now) || tell
			} else {
				for namespace := range m.answers {
					tell = c.forgetAnswers(account, namespace, matches, now) || tell
				}
			}
			for request, f := range m.flights {
				if (pair.namespace == "" || pair.namespace == request.Namespace) && matches(question{request: request}) {
					m.overtake(request, f)
					tell = true
				}
			}
		}
		for _, role := range e.roles {
			q := question{topic: aboutRole, request: roleRequest(role)}
			if a := m.answers[role.Namespace][q]; a != nil {
				tell = c.forgetAnswer(account, q, a, now) || tell
			}
		}
		if tell {
			concerned = append(concerned, account)
		}
		c.tidy(account)
	}
	return concerned
}

// forgetAll forgets the answers of all accounts that are suspect, and what is
// being asked. It returns the accounts that should ask again.
func (c *cache) forgetAll(suspect func(*answer) bool, now time.Time) []types.NamespacedName {
	var concerned []types.NamespacedName
	for account, m := range c.accounts {
		tell := false
		for _, answers := range m.answers {
			for q, a := range answers {
				if suspect(a) && a.forgotten.IsZero() {
					tell = c.forgetAnswer(account, q, a, now) || tell
				}
			}
		}
		for request, f := range m.flights {
			m.overtake(request, f)
			tell = true
		}
		if tell {
			concerned = append(concerned, account)
		}
	}
	return concerned
}

// forgetAnswers forgets the answers of an account in a namespace. It reports
// whether somebody wants to know.
func (c *cache) forgetAnswers(account types.NamespacedName, namespace string, matches func(question) bool, now time.Time) bool {
	tell := false
	for q, a := range c.accounts[account].answers[namespace] {
		if matches(q) {
			tell = c.forgetAnswer(account, q, a, now) || tell
		}
	}
	return tell
}

func (c *cache) forgetAnswer(account types.NamespacedName, q question, a *answer, now time.Time) bool {
	if q.topic == aboutRequest && a.forgotten.IsZero() {
		invalidations.Inc()
	}
	if a.forget(now) {
		return true
	}
	c.remove(account, q)
	return false
}

// overtake is about a review whose answer may be from before an event: nobody
// else waits for it, and it is not kept.
func (m *memory) overtake(request Request, f *flight) {
	f.overtaken = true
	delete(m.flights, request)
}

// roleRequest is how a role is named in a question.
func roleRequest(role objectKey) Request {
	return Request{Namespace: role.Namespace, Name: role.Name}
}
