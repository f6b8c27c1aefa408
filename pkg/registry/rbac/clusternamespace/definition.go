// Package clusternamespace defines how ClusterNamespaces are served.
package clusternamespace

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/validation"
	"open-cluster-management.io/hub-apiserver/pkg/quota"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// Definition is the row of ClusterNamespaces.
func Definition() definition.Resource {
	return definition.Resource{
		Name: "clusternamespaces", Singular: "clusternamespace", Kind: "ClusterNamespace",
		ShortNames: []string{"cns"}, Categories: []string{"ocm"},
		Versions: []schema.GroupVersion{rbacv1alpha1.SchemeGroupVersion},
		New:      func() runtime.Object { return &rbac.ClusterNamespace{} },
		NewList:  func() runtime.Object { return &rbac.ClusterNamespaceList{} },
		Strategy: &definition.Strategy[*rbac.ClusterNamespace]{
			Spec:           func(n *rbac.ClusterNamespace) any { return &n.Spec },
			Validate:       validation.ValidateClusterNamespace,
			ValidateUpdate: validation.ValidateClusterNamespaceUpdate,
		},
		// Clusters with 10,000 namespaces are the largest that Kubernetes is tested with.
		Quota: quota.Limits{Objects: 10_000, Bytes: 32 << 20},
		// Labels are those of a namespace, which Kubernetes bounds only by the size of a
		// request; nothing else of a report is large.
		Limits: quota.ObjectLimits{AnnotationBytes: 16 << 10, SpecBytes: 1 << 10},
		Columns: definition.Columns[*rbac.ClusterNamespace]{
			{Name: "UID", Description: "UID of the namespace on the managed cluster.", Wide: true,
				Value: func(n *rbac.ClusterNamespace) any { return string(n.Spec.NamespaceUID) }},
		},
	}
}
