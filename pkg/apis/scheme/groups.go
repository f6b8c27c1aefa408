package scheme

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	accessv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/access/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/addon"
	addonv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	addonv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication"
	authenticationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1alpha1"
	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	clusterviewv1 "open-cluster-management.io/hub-apiserver/pkg/apis/clusterview/v1"
	clusterviewv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/clusterview/v1alpha1"
	migrationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/migration/v1alpha1"
	proxyv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/proxy/v1alpha1"
	proxyv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/proxy/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	rbacv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// addGroups adds the internal and versioned types of all groups. The preferred version of a group comes first. It panics on
// a programming error, such as two types of one kind.
func addGroups() {
	for _, internal := range []func(*runtime.Scheme) error{addon.AddToScheme, authentication.AddToScheme, cluster.AddToScheme, rbac.AddToScheme, work.AddToScheme} {
		utilruntime.Must(internal(Scheme))
	}
	// Where nothing is stored, the versioned types are also the internal types. The group proxy shares internal types with
	// the group authentication.
	addInternal(accessv1alpha1.GroupName, accessv1alpha1.Types()...)
	addInternal(clusterviewv1.GroupName, clusterviewv1.Types()...)
	addInternal(clusterviewv1.GroupName, clusterviewv1alpha1.Types()...)
	addInternal(migrationv1alpha1.GroupName, migrationv1alpha1.Types()...)
	addInternal(proxyv1alpha1.GroupName, &authentication.ManagedServiceAccount{}, &authentication.ManagedServiceAccountList{})
	addInternal(proxyv1alpha1.GroupName, &proxyv1beta1.ClusterStatus{}, &proxyv1beta1.ClusterStatusProxyOptions{})
	addInternal(registerv1alpha1.GroupName, registerv1alpha1.Types()...)
	addInternal(searchv1alpha1.GroupName, searchv1alpha1.Types()...)

	add(accessv1alpha1.AddToScheme, accessv1alpha1.SchemeGroupVersion)
	add(addonv1beta1.AddToScheme, addonv1beta1.SchemeGroupVersion)
	add(addonv1alpha1.AddToScheme, addonv1alpha1.SchemeGroupVersion)
	add(authenticationv1beta1.AddToScheme, authenticationv1beta1.SchemeGroupVersion)
	add(authenticationv1alpha1.AddToScheme, authenticationv1alpha1.SchemeGroupVersion)
	add(clusterv1.AddToScheme, clusterv1.SchemeGroupVersion)
	add(clusterv1beta2.AddToScheme, clusterv1beta2.SchemeGroupVersion)
	add(clusterviewv1.AddToScheme, clusterviewv1.SchemeGroupVersion)
	add(clusterviewv1alpha1.AddToScheme, clusterviewv1alpha1.SchemeGroupVersion)
	add(migrationv1alpha1.AddToScheme, migrationv1alpha1.SchemeGroupVersion)
	add(proxyv1beta1.AddToScheme, proxyv1beta1.SchemeGroupVersion)
	add(proxyv1alpha1.AddToScheme, proxyv1alpha1.SchemeGroupVersion)
	add(rbacv1alpha1.AddToScheme, rbacv1alpha1.SchemeGroupVersion)
	add(rbacv1beta1.AddToScheme, rbacv1beta1.SchemeGroupVersion)
	add(registerv1alpha1.AddToScheme, registerv1alpha1.SchemeGroupVersion)
	add(searchv1alpha1.AddToScheme, searchv1alpha1.SchemeGroupVersion)
	add(workv1.AddToScheme, workv1.SchemeGroupVersion)
}

// add adds the types of a version after those of the versions that the group prefers.
func add(toScheme func(*runtime.Scheme) error, version schema.GroupVersion) {
	preferred := Scheme.PrioritizedVersionsForGroup(version.Group)
	utilruntime.Must(toScheme(Scheme))
	utilruntime.Must(Scheme.SetVersionPriority(append(preferred, version)...))
}

func addInternal(group string, types ...runtime.Object) {
	Scheme.AddKnownTypes(schema.GroupVersion{Group: group, Version: runtime.APIVersionInternal}, types...)
}
