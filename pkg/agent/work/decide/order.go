package decide

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// lastRank is the rank of admission webhooks. Their backends are usually not reachable yet while
// the other manifests are applied.
const lastRank = 9

// otherRank is the rank of kinds that are not in ranks.
const otherRank = 6

// ranks orders kinds so that a kind precedes the kinds that depend on it.
var ranks = map[schema.GroupKind]int{
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: 0,
	{Kind: "Namespace"}: 0,

	{Kind: "ServiceAccount"}:                            1,
	{Group: "scheduling.k8s.io", Kind: "PriorityClass"}: 1,
	{Group: "storage.k8s.io", Kind: "StorageClass"}:     1,
	{Kind: "ResourceQuota"}:                             1,
	{Kind: "LimitRange"}:                                1,

	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}: 2,
	{Group: "rbac.authorization.k8s.io", Kind: "Role"}:        2,

	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"}: 3,
	{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}:        3,

	{Kind: "Secret"}:           4,
	{Kind: "ConfigMap"}:        4,
	{Kind: "PersistentVolume"}: 4,

	{Kind: "Service"}:               5,
	{Kind: "PersistentVolumeClaim"}: 5,

	{Group: "apiregistration.k8s.io", Kind: "APIService"}:                             lastRank - 1,
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"}:        lastRank - 1,
	{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicy"}:          lastRank - 1,
	{Group: "admissionregistration.k8s.io", Kind: "MutatingWebhookConfiguration"}:     lastRank,
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration"}:   lastRank,
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicyBinding"}: lastRank,
	{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicyBinding"}:   lastRank,
}

func rank(kind schema.GroupKind) int {
	if r, ok := ranks[kind]; ok {
		return r
	}
	return otherRank
}

// Order returns the items in the order in which they are applied. Items of the same rank keep
// the order of the spec.
func Order(items []*Item) []*Item {
	ordered := slices.Clone(items)
	slices.SortStableFunc(ordered, func(a, b *Item) int {
		return cmp.Compare(rank(a.GVK.GroupKind()), rank(b.GVK.GroupKind()))
	})
	return ordered
}
