package decide

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// installOrder is the order in which Helm installs resources, so that a resource precedes those
// that depend on it. Other resources, such as those of CustomResourceDefinitions, follow.
var installOrder = []schema.GroupResource{
	{Group: "scheduling.k8s.io", Resource: "priorityclasses"},
	{Resource: "namespaces"},
	{Group: "networking.k8s.io", Resource: "networkpolicies"},
	{Resource: "resourcequotas"},
	{Resource: "limitranges"},
	{Group: "policy", Resource: "poddisruptionbudgets"},
	{Resource: "serviceaccounts"},
	{Resource: "secrets"},
	{Resource: "configmaps"},
	{Group: "storage.k8s.io", Resource: "storageclasses"},
	{Resource: "persistentvolumes"},
	{Resource: "persistentvolumeclaims"},
	{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
	{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
	{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"},
	{Group: "rbac.authorization.k8s.io", Resource: "roles"},
	{Group: "rbac.authorization.k8s.io", Resource: "rolebindings"},
	{Resource: "services"},
	{Group: "apps", Resource: "daemonsets"},
	{Resource: "pods"},
	{Resource: "replicationcontrollers"},
	{Group: "apps", Resource: "replicasets"},
	{Group: "apps", Resource: "deployments"},
	{Group: "autoscaling", Resource: "horizontalpodautoscalers"},
	{Group: "apps", Resource: "statefulsets"},
	{Group: "batch", Resource: "jobs"},
	{Group: "batch", Resource: "cronjobs"},
	{Group: "networking.k8s.io", Resource: "ingressclasses"},
	{Group: "networking.k8s.io", Resource: "ingresses"},
}

// interceptors are the resources that answer or refuse requests for other resources. Their backends
// are usually not reachable yet while the other manifests are applied.
var interceptors = []schema.GroupResource{
	{Group: "apiregistration.k8s.io", Resource: "apiservices"},
	{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"},
	{Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicies"},
	{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"},
	{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations"},
	{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings"},
	{Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicybindings"},
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
