package accessreview

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// rulePair contains the rules of an account through one binding before and after an event.
type rulePair struct {
	namespace     string
	before, after *ruleSet
}

// effect is the effect of an event on accounts. It caches intermediate results, because many
// questions depend on the same rules.
type effect struct {
	event
	differing map[rulePair]bool
	grants    map[*ruleSet]map[action]grant
}

func newEffect(e event) *effect {
	return &effect{event: e, differing: map[rulePair]bool{}, grants: map[*ruleSet]map[action]grant{}}
}

// on returns the rules of an account that an event changes.
func (e *effect) on(account types.NamespacedName) map[rulePair]bool {
	pairs := map[rulePair]bool{}
	subjects := subjectsOf(account)
	for _, c := range e.changes {
		pair := rulePair{namespace: c.Namespace, before: rulesFor(c.Before, subjects), after: rulesFor(c.After, subjects)}
		differs, known := e.differing[pair]
		if !known {
			differs = !pair.before.Equal(pair.after)
			e.differing[pair] = differs
		}
		if differs {
			pairs[pair] = true
		}
	}
	return pairs
}

func rulesFor(g rbac.Grant[*ruleSet], subjects []rbac.Subject) *ruleSet {
	if g.Rules == nil || !g.Includes(subjects) {
		return nil
	}
	return g.Rules
}

// decides reports whether the answer to a question may have changed. The pair must apply
// to the namespace of the question.
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

// concerns reports whether the event may change the decision on a request of an account.
func (e *effect) concerns(account types.NamespacedName, request Request) bool {
	for pair := range e.on(account) {
		if (pair.namespace == "" || pair.namespace == request.Namespace) && e.decides(pair, question{request: request}) {
			return true
		}
	}
	return false
}

// apply invalidates the answers that an effect may have changed. It returns the accounts
// to notify.
func (c *cache) apply(e *effect, now time.Time) []types.NamespacedName {
	var concerned []types.NamespacedName
	for account, m := range c.accounts {
		pairs := e.on(account)
		// The questions of evicted answers are unknown.
		notify := m.lost && len(pairs) > 0
		for pair := range pairs {
			matches := func(q question) bool { return e.decides(pair, q) }
			if pair.namespace != "" {
				notify = c.invalidateAnswers(account, pair.namespace, matches, now) || notify
			} else {
				for namespace := range m.answers {
					notify = c.invalidateAnswers(account, namespace, matches, now) || notify
				}
			}
			for request, f := range m.flights {
				if (pair.namespace == "" || pair.namespace == request.Namespace) && matches(question{request: request}) {
					m.overtake(request, f)
					notify = true
				}
			}
		}
		for _, role := range e.roles {
			q := question{topic: aboutRole, request: roleRequest(role)}
			if a := m.answers[role.Namespace][q]; a != nil {
				notify = c.invalidateAnswer(account, q, a, now) || notify
			}
		}
		if notify {
			concerned = append(concerned, account)
		}
		c.tidy(account)
	}
	return concerned
}

// invalidateAll invalidates the suspect answers of all accounts, and all flights. It
// returns the accounts to notify.
func (c *cache) invalidateAll(suspect func(*answer) bool, now time.Time) []types.NamespacedName {
	var concerned []types.NamespacedName
	for account, m := range c.accounts {
		notify := false
		for _, answers := range m.answers {
			for q, a := range answers {
				if suspect(a) && a.invalidated.IsZero() {
					notify = c.invalidateAnswer(account, q, a, now) || notify
				}
			}
		}
		for request, f := range m.flights {
			m.overtake(request, f)
			notify = true
		}
		if notify {
			concerned = append(concerned, account)
		}
	}
	return concerned
}

// invalidateAnswers invalidates the answers of an account in a namespace. It reports
// whether to notify the account.
func (c *cache) invalidateAnswers(account types.NamespacedName, namespace string, matches func(question) bool, now time.Time) bool {
	notify := false
	for q, a := range c.accounts[account].answers[namespace] {
		if matches(q) {
			notify = c.invalidateAnswer(account, q, a, now) || notify
		}
	}
	return notify
}

func (c *cache) invalidateAnswer(account types.NamespacedName, q question, a *answer, now time.Time) bool {
	if q.topic == aboutRequest && a.invalidated.IsZero() {
		invalidations.Inc()
	}
	if a.invalidate(now) {
		return true
	}
	c.remove(account, q)
	return false
}

// overtake marks a flight whose answer may be older than an event. Its answer is not valid, and no
// other caller waits for it.
func (m *memory) overtake(request Request, f *flight) {
	f.overtaken = true
	delete(m.flights, request)
}

// roleRequest returns the request that identifies a role in a question.
func roleRequest(role rbac.Key) Request {
	return Request{Namespace: role.Namespace, Name: role.Name}
}
