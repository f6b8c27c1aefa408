package clusteradm

import (
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	addonv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1beta1"
	authenticationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1alpha1"
	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	rbacv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

func newHub(access *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	command := &cobra.Command{
		Use:   "hub",
		Short: "Prepare the loss of a hub, and replace it",
		Args:  cobra.NoArgs,
		RunE:  func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(newHubExport(access, streams), newHubStandby(access, streams), newHubAdopt(access, streams))
	return command
}

const (
	kindRegistration   = "ManagedClusterRegistration"
	kindManagedCluster = "ManagedCluster"
	kindClusterSet     = "ManagedClusterSet"
)

// ExportedKind is a kind that a hub stores, and that its successor needs.
type ExportedKind struct {
	Kind     string
	Resource schema.GroupVersionResource
}

// ExportedKinds returns all kinds that the server stores, in the order in which another hub adopts them.
func ExportedKinds() []ExportedKind {
	return []ExportedKind{
		// The server would create the registration of a ManagedCluster without one.
		{kindRegistration, registerv1alpha1.SchemeGroupVersion.WithResource("managedclusters")},
		{kindManagedCluster, clusterv1.SchemeGroupVersion.WithResource("managedclusters")},
		{kindClusterSet, clusterv1beta2.SchemeGroupVersion.WithResource("managedclustersets")},
		{"ManagedClusterSetBinding", clusterv1beta2.SchemeGroupVersion.WithResource("managedclustersetbindings")},
		{"ClusterManagementAddOn", addonv1beta1.SchemeGroupVersion.WithResource("clustermanagementaddons")},
		{"AddOnDeploymentConfig", addonv1beta1.SchemeGroupVersion.WithResource("addondeploymentconfigs")},
		{"ManagedClusterAddOn", addonv1beta1.SchemeGroupVersion.WithResource("managedclusteraddons")},
		{"ClusterNamespace", rbacv1alpha1.SchemeGroupVersion.WithResource("clusternamespaces")},
		{"ManagedServiceAccount", authenticationv1beta1.SchemeGroupVersion.WithResource("managedserviceaccounts")},
		{"ManagedServiceAccountBinding", authenticationv1alpha1.SchemeGroupVersion.WithResource("managedserviceaccountbindings")},
		{"MulticlusterRoleAssignment", rbacv1beta1.SchemeGroupVersion.WithResource("multiclusterroleassignments")},
		{"ClusterPermission", rbacv1alpha1.SchemeGroupVersion.WithResource("clusterpermissions")},
		{"ManifestWork", workv1.SchemeGroupVersion.WithResource("manifestworks")},
	}
}
