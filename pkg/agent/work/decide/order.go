package decide

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// installOrder is the order in which Helm installs resources, so that a resource precedes those
// that depend on it. Other resources, such as those of CustomResourceDefinitions, follow.
var installOrder = resources(`
	priorityclasses.scheduling.k8s.io namespaces networkpolicies.networking.k8s.io resourcequotas limitranges
	poddisruptionbudgets.policy serviceaccounts secrets configmaps storageclasses.storage.k8s.io
	persistentvolumes persistentvolumeclaims customresourcedefinitions.apiextensions.k8s.io
	clusterroles.rbac.authorization.k8s.io clusterrolebindings.rbac.authorization.k8s.io
	roles.rbac.authorization.k8s.io rolebindings.rbac.authorization.k8s.io
	services daemonsets.apps pods replicationcontrollers replicasets.apps deployments.apps
	horizontalpodautoscalers.autoscaling statefulsets.apps jobs.batch cronjobs.batch
	ingressclasses.networking.k8s.io ingresses.networking.k8s.io`)

// interceptors are the resources that answer or refuse requests for other resources. Their backends
// are usually not reachable yet while the other manifests are applied.
var interceptors = resources(`
	apiservices.apiregistration.k8s.io
	validatingadmissionpolicies.admissionregistration.k8s.io
	mutatingadmissionpolicies.admissionregistration.k8s.io
	mutatingwebhookconfigurations.admissionregistration.k8s.io
	validatingwebhookconfigurations.admissionregistration.k8s.io
	validatingadmissionpolicybindings.admissionregistration.k8s.io
	mutatingadmissionpolicybindings.admissionregistration.k8s.io`)

// resources parses a list of resources.
func resources(list string) (parsed []schema.GroupResource) {
	for _, resource := range strings.Fields(list) {
		parsed = append(parsed, schema.ParseGroupResource(resource))
	}
	return parsed
}

var ranks = func() map[schema.GroupResource]int {
	ranks := map[schema.GroupResource]int{}
	for i, resource := range installOrder {
		ranks[resource] = i - len(installOrder)
	}
	for i, resource := range interceptors {
		ranks[resource] = i + 1
	}
	return ranks
}()

// Intercepts reports whether an object could answer or refuse requests for other objects.
func (i *Item) Intercepts() bool { return ranks[i.GVR.GroupResource()] > 0 }

// Order returns the items in the order in which they are applied. Items of the same rank keep
// the order of the spec.
func Order(items []*Item) []*Item {
	ordered := slices.Clone(items)
	slices.SortStableFunc(ordered, func(a, b *Item) int {
		return cmp.Compare(ranks[a.GVR.GroupResource()], ranks[b.GVR.GroupResource()])
	})
	return ordered
}

// OrderEntries returns the entries in the order in which their objects are applied. Records of upstream
// OCM agents, and those of passes that failed, have another order.
func OrderEntries(entries []workv1.AppliedManifestResourceMeta) []workv1.AppliedManifestResourceMeta {
	ordered := slices.Clone(entries)
	slices.SortStableFunc(ordered, func(a, b workv1.AppliedManifestResourceMeta) int {
		return cmp.Compare(EntryRank(a), EntryRank(b))
	})
	return ordered
}

// EntryRank returns the rank of an entry in the order of application. It is negative for the resources
// on which others may depend, zero for those of unknown kinds, and positive for interceptors.
func EntryRank(entry workv1.AppliedManifestResourceMeta) int {
	return ranks[schema.GroupResource{Group: entry.Group, Resource: entry.Resource}]
}
