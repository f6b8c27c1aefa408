package access

import (
	"cmp"
	"slices"
	"strings"
	"unique"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// Attributes describe a request. An empty namespace or name, or "*", stands for all.
type Attributes struct {
	Verb                               string
	Namespace                          string
	Group, Resource, Subresource, Name string
	// NonResource selects Path instead of the fields of a resource.
	NonResource bool
	Path        string
}

func (a *Attributes) request() rbac.Request {
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	return rbac.Request{Verb: a.Verb, Group: a.Group, Resource: resource, Name: all(a.Name), NonResource: a.NonResource, Path: a.Path}
}

// all returns the empty string for "*".
func all(name string) string {
	if name == "*" {
		return ""
	}
	return name
}

// bindingNamespace returns the namespace whose RoleBindings apply, or the empty string if only ClusterRoleBindings do.
func (a *Attributes) bindingNamespace() word {
	if a.NonResource {
		return noString
	}
	return unique.Make(all(a.Namespace))
}

// Subject is a user with its groups. Questions add no groups.
type Subject struct {
	User   string
	Groups []string
}

// SubjectFor returns a user with the groups that an API server adds after authentication:
// those of all authenticated users, and of ServiceAccounts.
func SubjectFor(name string, groups []string) Subject {
	s := Subject{User: name, Groups: slices.Clip(groups)}
	if namespace, _, err := serviceaccount.SplitUsername(name); err == nil {
		s.Groups = append(s.Groups, serviceaccount.MakeGroupNames(namespace)...)
	}
	if name == user.Anonymous {
		s.Groups = append(s.Groups, user.AllUnauthenticated)
	} else if !slices.Contains(groups, user.AllUnauthenticated) {
		s.Groups = append(s.Groups, user.AllAuthenticated)
	}
	s.Groups = rbac.Sorted(s.Groups)
	return s
}

// SubjectOf returns a user with the groups that an API server adds, or false without subjects. The subjects are the user
// and its groups; the user may be missing.
func SubjectOf(subjects []rbac.Subject) (Subject, bool) {
	var name string
	var groups []string
	for _, s := range subjects {
		if s.Group {
			groups = append(groups, s.Name)
		} else {
			name = s.Name
		}
	}
	return SubjectFor(name, groups), len(subjects) > 0
}

// Subjects returns the user and its groups as subjects of bindings, sorted and different.
func (s Subject) Subjects() []rbac.Subject {
	subjects := []rbac.Subject{{Name: s.User}}
	for _, group := range rbac.Sorted(s.Groups) {
		subjects = append(subjects, rbac.Subject{Group: true, Name: group})
	}
	return subjects
}

// Decision is the answer to a request on one cluster.
type Decision string

// The decisions.
const (
	Allowed Decision = "Allowed"
	Denied  Decision = "Denied"
	// Unknown means that the Index cannot tell.
	Unknown Decision = "Unknown"
)

// Chain says how a subject receives a permission: a binding that contains it, the role of
// the binding, and the rule of the role.
type Chain struct {
	Binding rbac.Key
	Subject rbac.Subject
	Role    rbac.Key
	Rule    rbacv1.PolicyRule
}

// Answer is the answer about one cluster.
type Answer struct {
	Cluster  string
	Decision Decision
	// Reason is a sentence. It is empty where the chains say it all.
	Reason string
	// Chains are the first chains that allow the request, ClusterRoleBindings first. Answers
	// share them: callers must not change them.
	Chains []*Chain
}

const (
	reasonNoReport = "the cluster has not reported its roles and bindings"
	reasonDenied   = "no role that is bound to the subject allows the request"
	reasonOther    = "RBAC does not allow the request, but the API server of the cluster also asks another authorizer"
	reasonNode     = "RBAC does not allow the request, but the Node authorizer may allow it"
	// ReasonMasters says why a member of system:masters is allowed without a chain.
	ReasonMasters = "API servers allow every request of the group system:masters"
)

// CanI decides a request of a subject on each of the clusters, in their order. It returns
// at most maxChains chains for each cluster.
func (x *Index) CanI(s Subject, a Attributes, clusters []string, maxChains int) []Answer {
	x.mu.RLock()
	defer x.mu.RUnlock()
	answers := make([]Answer, len(clusters))
	masters := slices.Contains(s.Groups, user.SystemPrivilegedGroup)
	for i, name := range clusters {
		answers[i] = x.answer(name, s, masters)
	}
	asked, at := x.ask(clusters)
	if masters || asked.size == 0 {
		return answers
	}
	q := x.newEvaluation(a, asked)
	for _, m := range x.memberships(s.Subjects(), func(b *binding) bool { return q.applies(b) && b.node != nil }) {
		v := q.verdict(m.binding.node)
		var last *permit
		var chain *Chain
		q.each(m.binding, v, func(p *permit, id uint32) bool {
			answer := &answers[at[id]]
			if len(answer.Chains) < maxChains {
				if p != last {
					last, chain = p, newChain(m, p)
				}
				answer.Chains = append(answer.Chains, chain)
			}
			answer.Decision, answer.Reason = Allowed, ""
			return true
		})
		lacking := len(x.clusters)
		for _, r := range m.binding.node.roles {
			lacking -= int(r.clusters.size)
		}
		if lacking == 0 {
			continue
		}
		m.binding.clusters.each(func(id uint32) bool {
			if asked.has(id) && answers[at[id]].Reason == reasonDenied && x.slots[id].roleOf(m.binding.node) == nil {
				role := rbac.Clip(m.binding.node.key().String(), 512) // clusters report names of any length
				answers[at[id]].Reason = reasonDenied + "; " + role + " is bound to it, but does not exist on the cluster"
			}
			return true
		})
	}
	return answers
}

// ask returns those of the clusters that are known, and the position of each.
func (x *Index) ask(clusters []string) (asked set, at []int32) {
	asked, at = newBitmap(len(x.slots)), make([]int32, len(x.slots))
	for i, name := range clusters {
		if c := x.clusters[name]; c != nil && c.state.Known {
			asked.add(c.id)
			at[c.id] = int32(i)
		}
	}
	return asked, at
}

// answer returns the answer of a cluster where no role allows the request.
func (x *Index) answer(name string, s Subject, masters bool) Answer {
	answer := Answer{Cluster: name, Decision: Unknown}
	switch c := x.clusters[name]; {
	case c == nil:
		answer.Reason = reasonNoReport
	case !c.state.Known:
		answer.Reason = cmp.Or(c.state.Reason, reasonNoReport)
	case masters:
		answer.Decision, answer.Reason = Allowed, ReasonMasters
	case c.state.OtherAuthorizers:
		answer.Reason = reasonOther
	case isNode(s):
		answer.Reason = reasonNode
	default:
		answer.Decision, answer.Reason = Denied, reasonDenied
	}
	return answer
}

// isNode reports whether the Node authorizer decides about the subject. RBAC cannot show
// whether a cluster uses that authorizer.
func isNode(s Subject) bool {
	return strings.HasPrefix(s.User, "system:node:") && slices.Contains(s.Groups, user.NodesGroup)
}

// membership is a binding that contains a subject.
type membership struct {
	binding *binding
	subject *subject
}

func newChain(m membership, p *permit) *Chain {
	return &Chain{
		Binding: m.binding.key(), Subject: m.subject.subject(), Role: p.role.node.key(), Rule: p.role.rules.Rules[p.rule],
	}
}

// evaluation decides one request on several clusters.
type evaluation struct {
	index     *Index
	request   rbac.Request
	namespace word
	// asked are the clusters: all of them are known.
	asked set
	// rules caches the index of the rule that allows the request, or -1.
	rules    map[*ruleSet]int
	verdicts map[*node]*verdict
}

func (x *Index) newEvaluation(a Attributes, asked set) *evaluation {
	return &evaluation{
		index: x, request: a.request(), namespace: a.bindingNamespace(), asked: asked, rules: map[*ruleSet]int{}, verdicts: map[*node]*verdict{},
	}
}

// verdict contains the roles of one name that allow the request.
type verdict struct {
	permits []permit
	// byCluster is the position of the permit of each cluster plus one. It is computed when it is needed.
	byCluster []uint32
}

// permit is a role that allows the request by one of its rules.
type permit struct {
	role *role
	rule int
}

var noVerdict = &verdict{}

func (q *evaluation) verdict(n *node) *verdict {
	if n == nil {
		return noVerdict
	}
	if v := q.verdicts[n]; v != nil {
		return v
	}
	v := noVerdict
	for _, r := range n.roles {
		rule, known := q.rules[r.rules]
		if !known {
			rule = r.rules.Allows(&q.request)
			q.rules[r.rules] = rule
		}
		if rule >= 0 {
			if v == noVerdict {
				v = &verdict{}
			}
			v.permits = append(v.permits, permit{r, rule})
		}
	}
	q.verdicts[n] = v
	return v
}

// applies reports whether a binding applies in the namespace of the request.
func (q *evaluation) applies(b *binding) bool {
	return b.namespace == noString || b.namespace == q.namespace
}

// manyPermits is the number of permits from which the one of a cluster is looked up
// instead of intersecting all of them.
const manyPermits = 4

// each calls yield with the clusters on which a binding allows the request, in groups with
// the same permit, until yield returns false.
func (q *evaluation) each(b *binding, v *verdict, yield func(p *permit, cluster uint32) bool) bool {
	if len(v.permits) > manyPermits && int(b.clusters.size) < len(v.permits) {
		if v.byCluster == nil {
			v.byCluster = make([]uint32, len(q.index.slots))
			for i := range v.permits {
				v.permits[i].role.clusters.each(func(id uint32) bool { v.byCluster[id] = uint32(i) + 1; return true })
			}
		}
		return b.clusters.each(func(id uint32) bool {
			i := v.byCluster[id]
			return i == 0 || !q.asked.has(id) || yield(&v.permits[i-1], id)
		})
	}
	for i := range v.permits {
		p := &v.permits[i]
		if !eachCommon(&b.clusters, &p.role.clusters, &q.asked, func(id uint32) bool { return yield(p, id) }) {
			return false
		}
	}
	return true
}

// grants reports whether a binding allows the request on any cluster.
func (q *evaluation) grants(b *binding, v *verdict) bool {
	return !q.each(b, v, func(*permit, uint32) bool { return false })
}

// memberships returns the wanted bindings that contain any of the subjects, each once, ClusterRoleBindings first and then by
// name.
func (x *Index) memberships(subjects []rbac.Subject, wanted func(*binding) bool) []membership {
	var list []membership
	seen := map[*binding]bool{}
	for _, s := range subjects {
		bound := x.records.subjects[subjectKey{unique.Make(s.Name), s.Group}]
		if bound == nil {
			continue
		}
		for _, entry := range bound.bindings {
			if b := entry.binding; !seen[b] && wanted(b) {
				seen[b] = true
				list = append(list, membership{b, bound})
			}
		}
	}
	slices.SortFunc(list, compareMemberships)
	return list
}

func compareMemberships(a, b membership) int {
	return a.binding.compare(b.binding.namespace.Value(), b.binding.name.Value())
}

// Holding is a binding that contains a subject, with all rules of its role.
type Holding struct {
	Binding rbac.Key
	Subject rbac.Subject
	Role    rbac.Key
	// Missing means that the cluster has no such role: the binding grants nothing.
	Missing bool
	Rules   []rbacv1.PolicyRule
	// Escalations are the ways to gain other permissions that the rules contain.
	Escalations []EscalationKind
}

// ClusterHoldings is what a subject holds on one cluster.
type ClusterHoldings struct {
	Cluster string
	// Known is false if the cluster is not known. Reason says why.
	Known  bool
	Reason string
	// Masters means that the subject is allowed everything without a binding.
	Masters bool
	// Holdings are shared: callers must not change them.
	Holdings []*Holding
}

// Holdings returns all bindings of a subject on each of the clusters, in their order, with
// at most limit bindings for each. more is the number of the omitted ones.
func (x *Index) Holdings(s Subject, clusters []string, limit int) (holdings []ClusterHoldings, more int) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	holdings = make([]ClusterHoldings, len(clusters))
	for i, name := range clusters {
		holdings[i].Cluster = name
		if c := x.clusters[name]; c == nil || !c.state.Known {
			holdings[i].Reason = x.answer(name, s, false).Reason
		} else {
			holdings[i].Known, holdings[i].Masters = true, slices.Contains(s.Groups, user.SystemPrivilegedGroup)
		}
	}
	asked, at := x.ask(clusters)
	for _, m := range x.memberships(s.Subjects(), func(*binding) bool { return true }) {
		held := map[*role]*Holding{}
		m.binding.clusters.each(func(id uint32) bool {
			if !asked.has(id) {
				return true
			}
			into := &holdings[at[id]]
			if len(into.Holdings) >= limit {
				more++
				return true
			}
			r := x.slots[id].roleOf(m.binding.node)
			if held[r] == nil {
				held[r] = newHolding(m, r)
			}
			into.Holdings = append(into.Holdings, held[r])
			return true
		})
	}
	return holdings, more
}

// roleOf returns the role of a name on the cluster, or nil.
func (c *cluster) roleOf(n *node) *role {
	at, found := c.findRole(n)
	if !found {
		return nil
	}
	return c.roles[at]
}

func newHolding(m membership, r *role) *Holding {
	h := &Holding{Binding: m.binding.key(), Subject: m.subject.subject(), Missing: r == nil}
	if m.binding.node != nil {
		h.Role = m.binding.node.key()
	}
	if r == nil {
		return h
	}
	h.Rules = r.rules.Rules
	for _, e := range r.rules.escalations {
		if !slices.Contains(h.Escalations, e.kind) {
			h.Escalations = append(h.Escalations, e.kind)
		}
	}
	slices.Sort(h.Escalations)
	return h
}
