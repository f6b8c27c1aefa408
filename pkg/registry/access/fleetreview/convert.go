package fleetreview

import (
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	accessv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/access/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

const (
	// maxResponse bounds the text of rules in a response. A page ends early when it is reached.
	maxResponse = 8 << 20
	// maxWords and maxWord bound the lists of a rule and their texts, and maxRules the rules of a role: clusters report
	// them, so they can be of any size.
	maxWords = 100
	maxWord  = 256
	maxRules = 100
)

// budget is the part of maxResponse that is left.
type budget struct{ left int }

func newBudget() *budget { return &budget{left: maxResponse} }

func (b *budget) spent() bool { return b.left <= 0 }

// clip returns a rule within the bounds, and charges its size.
func (b *budget) clip(rule rbacv1.PolicyRule) rbacv1.PolicyRule {
	for _, list := range []*[]string{&rule.Verbs, &rule.APIGroups, &rule.Resources, &rule.ResourceNames, &rule.NonResourceURLs} {
		words := *list
		if len(words) == 0 {
			continue
		}
		clipped := make([]string, 0, min(len(words), maxWords+1))
		for i, word := range words {
			if i == maxWords {
				clipped = append(clipped, "...")
				break
			}
			word = rbac.Clip(word, maxWord)
			b.left -= len(word)
			clipped = append(clipped, word)
		}
		*list = clipped
	}
	return rule
}

// name returns a reported name within the bounds, and charges its size.
func (b *budget) name(text string) string {
	text = rbac.Clip(text, 2*maxWord)
	b.left -= len(text)
	return text
}

func (b *budget) reference(key rbac.Key) accessv1alpha1.RBACReference {
	return accessv1alpha1.RBACReference{Kind: key.Kind, Namespace: b.name(key.Namespace), Name: b.name(key.Name)}
}

func (b *budget) subject(s rbac.Subject) accessv1alpha1.AccessSubject {
	if s.Group {
		return accessv1alpha1.AccessSubject{Kind: rbacv1.GroupKind, Name: b.name(s.Name)}
	}
	if namespace, name, err := serviceaccount.SplitUsername(s.Name); err == nil {
		return accessv1alpha1.AccessSubject{Kind: rbacv1.ServiceAccountKind, Namespace: b.name(namespace), Name: b.name(name)}
	}
	return accessv1alpha1.AccessSubject{Kind: rbacv1.UserKind, Name: b.name(s.Name)}
}

func chainOf(c *access.Chain, left *budget) accessv1alpha1.AccessChain {
	return accessv1alpha1.AccessChain{Binding: left.reference(c.Binding), Subject: left.subject(c.Subject), Role: left.reference(c.Role), Rule: left.clip(c.Rule)}
}

func answerOf(a *access.Answer, left *budget) accessv1alpha1.ClusterAccess {
	out := accessv1alpha1.ClusterAccess{Cluster: a.Cluster, Decision: accessv1alpha1.AccessDecision(a.Decision), Reason: a.Reason}
	for _, c := range a.Chains {
		out.Chains = append(out.Chains, chainOf(c, left))
	}
	return out
}

func holdingOf(h *access.Holding, left *budget) accessv1alpha1.AccessHolding {
	held := accessv1alpha1.AccessHolding{
		Binding: left.reference(h.Binding), Subject: left.subject(h.Subject), Role: left.reference(h.Role), Missing: h.Missing,
	}
	for _, rule := range h.Rules[:min(len(h.Rules), maxRules)] {
		held.Rules = append(held.Rules, left.clip(rule))
	}
	for _, kind := range h.Escalations {
		held.Escalations = append(held.Escalations, string(kind))
	}
	return held
}

// grantsOf returns a grant for each ClusterPermission that delivered the binding to some of the clusters, and one for the
// other clusters.
func grantsOf(g *access.Grant, by deliveries, left *budget) []accessv1alpha1.AccessGrant {
	parts := map[string][]string{}
	if names := by[g.Chain.Binding]; len(names) == 0 {
		parts[""] = g.Clusters
	} else {
		for _, cluster := range g.Clusters {
			parts[names[cluster]] = append(parts[names[cluster]], cluster)
		}
	}
	var grants []accessv1alpha1.AccessGrant
	for _, permission := range slices.Sorted(maps.Keys(parts)) {
		clusters := parts[permission]
		named := clusters[:min(len(clusters), maxNamed)]
		for _, cluster := range named {
			left.left -= len(cluster)
		}
		chain := chainOf(g.Chain, left)
		chain.ClusterPermission = permission
		grants = append(grants, accessv1alpha1.AccessGrant{AccessChain: chain, ClusterCount: int32(len(clusters)), Clusters: named})
		if len(grants) > maxChains {
			break
		}
	}
	return grants
}

func subjectAccessOf(s *access.SubjectAnswer, by deliveries, left *budget) accessv1alpha1.SubjectAccess {
	out := accessv1alpha1.SubjectAccess{AccessSubject: left.subject(s.Subject), Reason: s.Reason, Truncated: s.More}
	for i := range s.Grants {
		out.Grants = append(out.Grants, grantsOf(&s.Grants[i], by, left)...)
	}
	for i := range s.Escalations {
		for _, grant := range grantsOf(&s.Escalations[i], by, left) {
			out.Escalations = append(out.Escalations, accessv1alpha1.AccessEscalation{Type: string(s.Escalations[i].Kind), AccessGrant: grant})
		}
	}
	if len(out.Grants) > maxChains {
		out.Grants, out.Truncated = out.Grants[:maxChains], true
	}
	if len(out.Escalations) > maxChains {
		out.Escalations, out.Truncated = out.Escalations[:maxChains], true
	}
	return out
}
