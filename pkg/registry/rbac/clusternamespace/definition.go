// Package clusternamespace serves ClusterNamespaces.
package clusternamespace

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/validation"
	"open-cluster-management.io/hub-apiserver/pkg/quota"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// Definition returns the row of ClusterNamespaces.
func Definition() definition.Resource {
	return definition.Resource{
		Name: "clusternamespaces", Singular: "clusternamespace", Kind: "ClusterNamespace",
		ShortNames: []string{"cns"}, Categories: []string{"ocm"},
		Versions: []schema.GroupVersion{rbacv1alpha1.SchemeGroupVersion},
		Strategy: &definition.Strategy[*rbac.ClusterNamespace]{
			Rules: validation.ClusterNamespace,
		},
		// Kubernetes is tested with up to 10,000 namespaces in a cluster.
		Quota: quota.Limits{Objects: 10_000, Bytes: 32 << 20},
		// The labels are copied from a namespace. Only the size of a request limits them.
		Limits: quota.ObjectLimits{AnnotationBytes: 16 << 10, SpecBytes: 1 << 10},
		Columns: definition.Columns[*rbac.ClusterNamespace]{
			{Name: "UID", Description: "UID of the namespace on the managed cluster.", Wide: true,
				Value: func(n *rbac.ClusterNamespace) any { return string(n.Spec.NamespaceUID) }},
		},
	}
}
