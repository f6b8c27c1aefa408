package access

import (
	"cmp"
	"crypto/sha256"
	"slices"
	"strings"
	"unique"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// EscalationKind is a way to gain a permission that a subject does not hold.
type EscalationKind string

// The ways. docs/fleet-access.md describes where each of them leads to the permission.
const (
	Bind                EscalationKind = "Bind"
	Escalate            EscalationKind = "Escalate"
	ImpersonateUsers    EscalationKind = "ImpersonateUsers"
	ImpersonateGroups   EscalationKind = "ImpersonateGroups"
	ImpersonateAccounts EscalationKind = "ImpersonateServiceAccounts"
	CreatePods          EscalationKind = "CreatePods"
	ExecPods            EscalationKind = "ExecPods"
	CreateTokens        EscalationKind = "CreateTokens"
	ReadSecrets         EscalationKind = "ReadSecrets"
	ProxyNodes          EscalationKind = "ProxyNodes"
	ApproveCertificates EscalationKind = "ApproveCertificates"
)

// impersonation is a request that may impersonate system:masters, unlike one with the verb impersonate:user-info.
var impersonation = rbac.Request{Verb: "impersonate", Resource: "groups"}

// escalation is a rule that is a way to gain permissions.
type escalation struct {
	kind EscalationKind
	rule int
}

// way describes the requests of one kind. One allowed request suffices.
type way struct {
	kind      EscalationKind
	verbs     []string
	group     string
	resources []string
}

var ways = []way{
	{Bind, []string{"bind"}, rbacv1.GroupName, []string{"roles", "clusterroles"}},
	{Escalate, []string{"escalate"}, rbacv1.GroupName, []string{"roles", "clusterroles"}},
	{ImpersonateUsers, []string{"impersonate"}, "", []string{"users"}},
	{ImpersonateUsers, []string{"impersonate:user-info"}, authenticationv1.GroupName, []string{"users"}},
	{ImpersonateGroups, []string{"impersonate"}, "", []string{"groups"}},
	{ImpersonateGroups, []string{"impersonate:user-info"}, authenticationv1.GroupName, []string{"groups"}},
	{ImpersonateAccounts, []string{"impersonate"}, "", []string{"serviceaccounts"}},
	{ImpersonateAccounts, []string{"impersonate:serviceaccount"}, authenticationv1.GroupName, []string{"serviceaccounts"}},
	{CreatePods, []string{"create"}, "", []string{"pods", "replicationcontrollers"}},
	{CreatePods, []string{"create"}, "apps", []string{"deployments", "daemonsets", "replicasets", "statefulsets"}},
	{CreatePods, []string{"create"}, "batch", []string{"jobs", "cronjobs"}},
	// A patch of a controller or of an existing template changes the ServiceAccount of its Pods.
	{CreatePods, []string{"update", "patch"}, "", []string{"replicationcontrollers"}},
	{CreatePods, []string{"update", "patch"}, "apps", []string{"deployments", "daemonsets", "replicasets", "statefulsets"}},
	{CreatePods, []string{"update", "patch"}, "batch", []string{"cronjobs"}},
	// Upgraded connections are authorized as create or get.
	{ExecPods, []string{"create", "get"}, "", []string{"pods/exec", "pods/attach"}},
	{ExecPods, []string{"update", "patch"}, "", []string{"pods/ephemeralcontainers"}},
	{CreateTokens, []string{"create"}, "", []string{"serviceaccounts/token"}},
	{ReadSecrets, []string{"get", "list", "watch"}, "", []string{"secrets"}},
	{ProxyNodes, []string{"get", "create"}, "", []string{"nodes/proxy"}},
	{ApproveCertificates, []string{"approve"}, "certificates.k8s.io", []string{"signers"}},
}

// matches reports whether a rule allows one of the requests for some name.
func (w *way) matches(rule *rbacv1.PolicyRule) bool {
	return slices.ContainsFunc(w.verbs, func(verb string) bool {
		return slices.ContainsFunc(w.resources, func(resource string) bool {
			q := rbac.Request{Verb: verb, Group: w.group, Resource: resource}
			return q.Matches(rule)
		})
	})
}

// escalationsOf returns the rules that are ways to gain permissions. Rules for single names are included.
func escalationsOf(rules []rbacv1.PolicyRule) []escalation {
	var found []escalation
	for i := range rules {
		for j := range ways {
			if e := (escalation{ways[j].kind, i}); !slices.Contains(found, e) && ways[j].matches(&rules[i]) {
				found = append(found, e)
			}
		}
	}
	return found
}

// Grant is a chain on the clusters where it exists.
type Grant struct {
	// Kind is the way to gain the permission that the chain grants. It is empty for the permission itself.
	Kind EscalationKind
	*Chain
	// Clusters are sorted. Grants share them: callers must not change them.
	Clusters []string

	binding *binding
	permit  permit
	ids     []uint32
}

// SubjectAnswer is a subject that is allowed a request, or can gain the permission.
type SubjectAnswer struct {
	rbac.Subject
	// Reason says why a subject without chain is allowed.
	Reason string
	// Grants are the chains that allow the request. They are empty for a subject that can only gain the permission.
	Grants      []Grant
	Escalations []Grant
	// More means that there are more grants or escalations than the question asks for.
	More bool
}

// Who asks who is allowed a request.
type Who struct {
	Attributes Attributes
	Clusters   []string
	// Escalations includes the subjects that can gain the permission.
	Escalations bool
	// Limit bounds the number of subjects. After is the last subject of the previous page, or its Position.
	Limit int
	After *rbac.Subject
	// MaxGrants bounds the grants and the escalations of each subject.
	MaxGrants int
}

// WhoAnswer is a page of subjects, users first and then by name.
type WhoAnswer struct {
	Subjects []SubjectAnswer
	// Total is the number of subjects of all pages, and Remaining that of the following ones.
	Total, Remaining int
	// Unknown are the clusters that are not known. The answer does not cover them.
	Unknown []Answer
	// OtherAuthorizers are the clusters on which other subjects may be allowed too.
	OtherAuthorizers []string
}

// WhoCan returns the subjects that are allowed a request.
func (x *Index) WhoCan(w Who) WhoAnswer {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var result WhoAnswer
	asked := newBitmap(len(x.slots))
	for _, name := range w.Clusters {
		c := x.clusters[name]
		if c == nil || !c.state.Known {
			result.Unknown = append(result.Unknown, x.answer(name, Subject{}, false))
			continue
		}
		asked.add(c.id)
		if c.state.OtherAuthorizers {
			result.OtherAuthorizers = append(result.OtherAuthorizers, name)
		}
	}
	if asked.size == 0 {
		return result
	}
	q := &whoEvaluation{
		evaluation: x.newEvaluation(w.Attributes, asked), found: map[*subject]bool{}, accounts: map[accountKey]*set{},
		escalating: map[*node][]*role{}, leading: map[leadKey]func(uint32) bool{}, direct: map[*subject]*set{},
	}
	q.findDirect()
	if w.Escalations {
		q.findEscalations()
	}
	subjects := q.page(&w, &result)
	for _, s := range subjects {
		result.Subjects = append(result.Subjects, q.answer(s, &w))
	}
	return result
}

// whoEvaluation is the evaluation of a question for subjects.
type whoEvaluation struct {
	*evaluation
	found map[*subject]bool
	// accounts are the clusters on which ServiceAccounts are allowed. The namespace or name someWord stands for any of them.
	accounts map[accountKey]*set
	// escalating are the roles with ways to gain permissions, and leading caches where these lead.
	escalating map[*node][]*role
	leading    map[leadKey]func(cluster uint32) bool
	// direct caches the clusters on which a subject is allowed.
	direct map[*subject]*set
	// names caches the names of all asked clusters.
	names []string
}

// findDirect finds the subjects that are allowed the request.
func (q *whoEvaluation) findDirect() {
	records, marks := &q.index.records, q.request.Marks()
	for i := range records.sets {
		rules := &records.sets[i]
		if !rules.marks.MayAllow(&marks) {
			continue
		}
		rule := rules.Allows(&q.request)
		if rule < 0 {
			continue
		}
		for _, r := range rules.users {
			v := q.verdicts[r.node]
			if v == nil {
				v = &verdict{}
				q.verdicts[r.node] = v
			}
			v.permits = append(v.permits, permit{r, rule})
		}
	}
	for n, v := range q.verdicts {
		q.findIn(n.buckets[noString], v)
		if q.namespace != noString {
			q.findIn(n.buckets[q.namespace], v)
		}
	}
}

// findIn finds the subjects of a bucket, which may be nil.
func (q *whoEvaluation) findIn(in *bucket, v *verdict) {
	if in == nil {
		return
	}
	for _, b := range in.bindings {
		if !q.grants(b, v) {
			continue
		}
		for _, ref := range b.subjects {
			q.found[ref.subject] = true
		}
	}
}

// verdictOf returns the verdict of a node without evaluating it: findDirect has found all.
func (q *whoEvaluation) verdictOf(n *node) *verdict {
	return cmp.Or(q.verdicts[n], noVerdict)
}

// findEscalations finds the subjects that can gain the permission.
func (q *whoEvaluation) findEscalations() {
	for s := range q.found {
		q.allowAccounts(s)
	}
	for _, rules := range q.index.records.sets {
		if len(rules.escalations) > 0 {
			for _, r := range rules.users {
				q.escalating[r.node] = append(q.escalating[r.node], r)
			}
		}
	}
	for n, roles := range q.escalating {
		for _, in := range n.buckets {
			if !q.canEscalate(in.namespace) {
				continue
			}
			for _, b := range in.bindings {
				if slices.ContainsFunc(roles, func(r *role) bool { return !q.eachEscalation(b, r, func(escalation, uint32) bool { return false }) }) {
					for _, ref := range b.subjects {
						q.found[ref.subject] = true
					}
				}
			}
		}
	}
}

// allowAccounts adds the clusters on which a subject is allowed to those of the ServiceAccounts that it stands for.
func (q *whoEvaluation) allowAccounts(s *subject) {
	a := s.accounts
	if a == (accountKey{}) {
		return
	}
	for _, k := range [...]accountKey{a, {a.namespace, someWord}, {someWord, a.name}, {someWord, someWord}} {
		on := q.accounts[k]
		if on == nil {
			bitmap := newBitmap(len(q.index.slots))
			on = &bitmap
			q.accounts[k] = on
		}
		q.directOf(s).each(func(id uint32) bool { on.add(id); return true })
	}
}

// canEscalate reports whether the bindings of a namespace matter at all.
func (q *whoEvaluation) canEscalate(namespace word) bool {
	return namespace == noString || namespace == q.namespace || q.accounts[accountKey{namespace, someWord}] != nil || q.accounts[accountKey{anyWord, someWord}] != nil
}

// eachEscalation calls yield with the rules of a role that lead to the permission through a
// binding, and the clusters where they do, until yield returns false.
func (q *whoEvaluation) eachEscalation(b *binding, r *role, yield func(e escalation, cluster uint32) bool) bool {
	for i, e := range r.rules.escalations {
		leads := q.cachedLeads(leadKey{b.namespace, r.rules, i})
		if leads != nil && !eachCommon(&b.clusters, &r.clusters, &q.asked, func(id uint32) bool { return !leads(id) || yield(e, id) }) {
			return false
		}
	}
	return true
}

// leadKey is an escalation of a rule set by a binding in a namespace, or by a ClusterRoleBinding.
type leadKey struct {
	namespace word
	rules     *ruleSet
	at        int
}

// cachedLeads returns the result of leads, which takes long for rules with names.
func (q *whoEvaluation) cachedLeads(k leadKey) func(cluster uint32) bool {
	leads, known := q.leading[k]
	if !known {
		leads = q.leads(k)
		q.leading[k] = leads
	}
	return leads
}

func always(uint32) bool { return true }

// leads returns whether a way leads to the permission on a cluster, or nil if it does on
// none. Without names, the way is open for all names.
func (q *whoEvaluation) leads(k leadKey) func(cluster uint32) bool {
	e := k.rules.escalations[k.at]
	rule := &k.rules.Rules[e.rule]
	names := rule.ResourceNames
	everywhere := k.namespace == noString
	applies := everywhere || k.namespace == q.namespace
	// A Role allows nothing outside its namespace.
	inRole := applies && q.namespace != noString && rbac.ContainsOrAll(rule.Resources, "roles")
	inClusterRole := applies && rbac.ContainsOrAll(rule.Resources, "clusterroles")
	switch e.kind {
	case Bind:
		switch {
		case !inRole && !inClusterRole:
			return nil
		case len(names) == 0:
			return always
		}
		var on []*set
		for _, name := range names {
			if inClusterRole {
				on = append(on, q.allowing(noString, name)...)
			}
			if inRole {
				on = append(on, q.allowing(q.namespace, name)...)
			}
		}
		return inAny(on)
	case Escalate:
		// ClusterRoles have no namespace, so a RoleBinding does not allow their escalation.
		if inRole || inClusterRole && everywhere {
			return always
		}
	case ImpersonateUsers, ImpersonateGroups:
		// Users and groups have no namespace.
		switch {
		case !everywhere:
			return nil
		case len(names) == 0:
			return always
		}
		return q.identities(names, e.kind == ImpersonateGroups, impersonation.Matches(rule))
	case ImpersonateAccounts, CreateTokens:
		return q.accountsIn(k.namespace, names)
	case CreatePods:
		// A Pod can mount any Secret and ConfigMap of its namespace.
		if applies && q.request.Verb == "get" && q.request.Group == "" && (q.request.Resource == "secrets" || q.request.Resource == "configmaps") {
			return always
		}
		fallthrough
	case ExecPods, ReadSecrets:
		return q.accountsIn(k.namespace, nil)
	case ProxyNodes:
		if everywhere {
			return q.accountsIn(noString, nil)
		}
	case ApproveCertificates:
		// Signers have no namespace.
		if everywhere && (len(names) == 0 || slices.ContainsFunc(names, issuesClients)) {
			return always
		}
	}
	return nil
}

// issuesClients reports whether a name of a rule for signers includes the signer of client certificates.
func issuesClients(name string) bool {
	return slices.Contains([]string{"kubernetes.io/kube-apiserver-client", "kubernetes.io/*"}, name)
}

// accountsIn returns the clusters on which a ServiceAccount of a namespace is allowed, by itself or through its groups, or
// nil if there are none. The empty namespace stands for all namespaces. Without names, all ServiceAccounts count.
func (q *whoEvaluation) accountsIn(namespace word, names []string) func(uint32) bool {
	if namespace == noString {
		namespace = someWord
	}
	words := []word{someWord}
	if len(names) > 0 {
		words = []word{anyWord}
	}
	for _, name := range names {
		words = append(words, unique.Make(name))
	}
	var on []*set
	for _, name := range words {
		for _, in := range [...]word{namespace, anyWord} {
			if s := q.accounts[accountKey{in, name}]; s != nil {
				on = append(on, s)
			}
		}
	}
	return inAny(on)
}

// inAny returns whether any of the sets contains a cluster, or nil without sets.
func inAny(sets []*set) func(uint32) bool {
	if len(sets) == 0 {
		return nil
	}
	return func(id uint32) bool { return slices.ContainsFunc(sets, func(s *set) bool { return s.has(id) }) }
}

// allowing returns the clusters on which a role of a name allows the request.
func (q *whoEvaluation) allowing(namespace word, name string) (on []*set) {
	n := q.index.records.nodes[nodeKey{namespace, unique.Make(name)}]
	for _, p := range q.verdictOf(n).permits {
		on = append(on, &p.role.clusters)
	}
	return on
}

// identities returns the clusters on which any of the users, with the groups that an API server adds, or any of the groups
// is allowed. masters is false if the group system:masters cannot be impersonated.
func (q *whoEvaluation) identities(names []string, groups, masters bool) func(uint32) bool {
	var on []*set
	for _, name := range names {
		subjects := []rbac.Subject{{Group: true, Name: name}}
		switch {
		case !groups:
			subjects = SubjectFor(name, nil).Subjects()
		case masters && name == user.SystemPrivilegedGroup:
			return always
		}
		for _, s := range subjects {
			if bound := q.index.records.subjects[subjectKey{unique.Make(s.Name), s.Group}]; q.found[bound] {
				on = append(on, q.directOf(bound))
			}
		}
	}
	return inAny(on)
}

func (q *whoEvaluation) directOf(s *subject) *set {
	if on := q.direct[s]; on != nil {
		return on
	}
	on := &set{}
	q.direct[s] = on
	for _, entry := range s.bindings {
		if b := entry.binding; q.applies(b) {
			q.each(b, q.verdictOf(b.node), func(_ *permit, id uint32) bool { on.add(id); return true })
		}
	}
	return on
}

func (q *whoEvaluation) page(w *Who, result *WhoAnswer) []*subject {
	masters := q.masters()
	q.found[masters] = true
	result.Total = len(q.found)
	compare := func(a, b *subject) int { return compareSubjects(a.subject(), b.subject()) }
	// The buffer holds the first subjects so far: sorting all of them would take longer.
	var buffer []*subject
	var last *subject
	candidates := 0
	for s := range q.found {
		if w.After != nil && compareSubjects(s.subject(), *w.After) <= 0 {
			continue
		}
		candidates++
		if last != nil && compare(s, last) >= 0 {
			continue
		}
		if buffer = append(buffer, s); len(buffer) == 2*w.Limit {
			slices.SortFunc(buffer, compare)
			buffer = buffer[:w.Limit]
			last = buffer[w.Limit-1]
		}
	}
	slices.SortFunc(buffer, compare)
	buffer = buffer[:min(len(buffer), w.Limit)]
	result.Remaining = candidates - len(buffer)
	return buffer
}

// positionBytes is the number of bytes of a name in a position.
const positionBytes = 512

// Position returns the position of a subject in pages of subjects. Its name is bounded: a longer one is replaced by its
// start and its hash. No name of a subject contains the byte between them, which is not UTF-8.
func Position(s rbac.Subject) rbac.Subject {
	if len(s.Name) > positionBytes+1+sha256.Size {
		sum := sha256.Sum256([]byte(s.Name))
		s.Name = s.Name[:positionBytes] + "\xff" + string(sum[:])
	}
	return s
}

// compareSubjects orders users first, and then by the names of their positions.
func compareSubjects(a, b rbac.Subject) int {
	switch {
	case a.Group == b.Group:
		if c := strings.Compare(a.Name[:min(len(a.Name), positionBytes)], b.Name[:min(len(b.Name), positionBytes)]); c != 0 {
			return c
		}
		return strings.Compare(Position(a).Name, Position(b).Name)
	case a.Group:
		return 1
	}
	return -1
}

// masters returns the group that API servers allow everything, also if no binding contains it.
func (q *whoEvaluation) masters() *subject {
	k := subjectKey{unique.Make(user.SystemPrivilegedGroup), true}
	if s := q.index.records.subjects[k]; s != nil {
		return s
	}
	return &subject{subjectKey: k}
}

// answer returns the grants and escalations of a subject.
func (q *whoEvaluation) answer(s *subject, w *Who) SubjectAnswer {
	a := SubjectAnswer{Subject: s.subject()}
	if a.Group && a.Name == user.SystemPrivilegedGroup {
		a.Reason = ReasonMasters
	}
	memberships := make([]membership, 0, len(s.bindings))
	for _, entry := range s.bindings {
		if b := entry.binding; b.node != nil && (q.applies(b) && q.verdicts[b.node] != nil || w.Escalations && q.escalating[b.node] != nil && q.canEscalate(b.namespace)) {
			memberships = append(memberships, membership{b, s})
		}
	}
	slices.SortFunc(memberships, compareMemberships)
	// add adds a cluster to the grant of a chain, unless that would be one too many.
	add := func(list *[]Grant, kind EscalationKind, m membership, p permit, cluster uint32) bool {
		at := slices.IndexFunc(*list, func(g Grant) bool { return g.Kind == kind && g.binding == m.binding && g.permit == p })
		if at < 0 {
			if len(*list) == w.MaxGrants {
				a.More = true
				return false
			}
			at = len(*list)
			*list = append(*list, Grant{Kind: kind, Chain: newChain(m, &p), binding: m.binding, permit: p})
		}
		(*list)[at].ids = append((*list)[at].ids, cluster)
		return true
	}
	for _, m := range memberships {
		if q.applies(m.binding) {
			q.each(m.binding, q.verdictOf(m.binding.node), func(p *permit, id uint32) bool { return add(&a.Grants, "", m, *p, id) })
		}
		if w.Escalations {
			for _, r := range q.escalating[m.binding.node] {
				q.eachEscalation(m.binding, r, func(e escalation, id uint32) bool { return add(&a.Escalations, e.kind, m, permit{r, e.rule}, id) })
			}
		}
	}
	for _, list := range [...][]Grant{a.Grants, a.Escalations} {
		for i := range list {
			q.name(&list[i])
		}
	}
	return a
}

// name sets the names of the clusters of a grant. Grants on all clusters share the list.
func (q *whoEvaluation) name(g *Grant) {
	if len(g.ids) < int(q.asked.size) {
		g.Clusters = q.clusterNames(g.ids)
	} else {
		if q.names == nil {
			q.names = q.clusterNames(g.ids)
		}
		g.Clusters = q.names
	}
	g.ids = nil
}

func (q *whoEvaluation) clusterNames(ids []uint32) []string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = q.index.slots[id].name
	}
	slices.Sort(names)
	return names
}
