package visibility

import (
	"encoding/binary"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// Reported is the RBAC that managed clusters report. Its methods may be called concurrently.
type Reported interface {
	// Grants calls yield with the rules that allow a verb to any of the subjects on clusters whose RBAC is known: with
	// the namespace in which the rules apply, or "" for all namespaces, and the names of the clusters. It returns
	// those of the given clusters whose RBAC is not known.
	Grants(subjects []rbac.Subject, verb string, clusters []string, yield func(namespace string, rules []rbacv1.PolicyRule, clusters []string)) (unknown []string)
	// Follow makes it call changed after each change of what Grants returns, with the cluster and the subjects for
	// which it may have changed. state is true if the RBAC of the cluster has become known or unknown.
	Follow(changed func(cluster string, state bool, concerned []rbac.Subject))
}

// maxShared is the number of rule sets that Scopes share.
const maxShared = 4096

// placedRules are rules that apply in a namespace, or everywhere if it is empty.
type placedRules struct {
	namespace string
	*ruleSet
}

// reported returns the permissions of subjects on the clusters whose RBAC is known, and those of the given clusters
// whose RBAC is not known.
func (d *delivered) reported(subjects []rbac.Subject, clusters []string) (granted map[string]*compiled, unknown []string) {
	var all []placedRules
	// positions are the rules that apply on each cluster.
	positions := map[string][]uint32{}
	unknown = d.compiler.config.Reported.Grants(subjects, verbList, clusters, func(namespace string, rules []rbacv1.PolicyRule, clusters []string) {
		set := newRulesFor(verbList, "", rules)
		if set.empty() {
			return
		}
		for _, cluster := range clusters {
			if cluster != d.compiler.config.HubCluster {
				positions[cluster] = append(positions[cluster], uint32(len(all)))
			}
		}
		all = append(all, placedRules{namespace, d.share(set)})
	})
	granted = make(map[string]*compiled, len(positions))
	// Many clusters have the same rules.
	same := map[string]*compiled{}
	for cluster, list := range positions {
		var key []byte
		for _, at := range list {
			key = binary.BigEndian.AppendUint32(key, at)
		}
		c := same[string(key)]
		if c == nil {
			byNamespace := map[string][]*ruleSet{}
			for _, at := range list {
				byNamespace[all[at].namespace] = append(byNamespace[all[at].namespace], all[at].ruleSet)
			}
			c = compileRules(byNamespace)
			same[string(key)] = c
		}
		granted[cluster] = c
	}
	return granted, unknown
}

// share returns rules with the same content that other Scopes use, if there are any.
func (d *delivered) share(set *ruleSet) *ruleSet {
	if known, found := d.shared.Get(set.fingerprint); found {
		if same, ok := known.(*ruleSet); ok {
			return same
		}
	}
	d.shared.Add(set.fingerprint, set)
	return set
}

// reportedChanged follows changes of the reported RBAC.
func (d *delivered) reportedChanged(cluster string, state bool, concerned []rbac.Subject) {
	if cluster == d.compiler.config.HubCluster {
		return
	}
	if state {
		// What ClusterPermissions have delivered there begins or ceases to apply.
		d.mu.RLock()
		if p := d.clusters[cluster]; p != nil {
			concerned = slices.AppendSeq(concerned, p.index.Subjects())
		}
		d.mu.RUnlock()
	}
	d.compiler.interests.managed.Touch(slices.DeleteFunc(concerned, local))
}
