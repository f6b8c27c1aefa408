package work

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// lastRank is the rank of admission webhooks: once they are in place they
// judge what is applied, and usually cannot yet be reached.
const lastRank = 9

// otherRank is the rank of kinds that no other kind is known to depend on.
const otherRank = 6

// ranks gives each kind that others depend on a place before them.
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

// applyOrder returns the items in the order in which they are applied. Items of
// one rank keep the order of the spec.
func applyOrder(items []*item) []*item {
	ordered := slices.Clone(items)
	slices.SortStableFunc(ordered, func(a, b *item) int {
		return cmp.Compare(rank(a.gvk.GroupKind()), rank(b.gvk.GroupKind()))
	})
	return ordered
}
