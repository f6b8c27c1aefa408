package scheme

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/conversion"
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

// addGroups adds the versioned and internal types of all groups. The preferred version of a group comes first. It panics on
// a programming error, such as two types of one kind.
func addGroups() {
	addVirtual(accessv1alpha1.AddToScheme, accessv1alpha1.SchemeGroupVersion)
	add(addonv1beta1.AddToScheme, addonv1beta1.SchemeGroupVersion)
	add(addonv1alpha1.AddToScheme, addonv1alpha1.SchemeGroupVersion)
	add(authenticationv1beta1.AddToScheme, authenticationv1beta1.SchemeGroupVersion)
	add(authenticationv1alpha1.AddToScheme, authenticationv1alpha1.SchemeGroupVersion)
	add(clusterv1.AddToScheme, clusterv1.SchemeGroupVersion)
	add(clusterv1beta2.AddToScheme, clusterv1beta2.SchemeGroupVersion)
	addVirtual(clusterviewv1.AddToScheme, clusterviewv1.SchemeGroupVersion)
	addVirtual(clusterviewv1alpha1.AddToScheme, clusterviewv1alpha1.SchemeGroupVersion)
	addVirtual(migrationv1alpha1.AddToScheme, migrationv1alpha1.SchemeGroupVersion)
	addVirtual(proxyv1beta1.AddToScheme, proxyv1beta1.SchemeGroupVersion)
	add(proxyv1alpha1.AddToScheme, proxyv1alpha1.SchemeGroupVersion)
	add(rbacv1alpha1.AddToScheme, rbacv1alpha1.SchemeGroupVersion)
	add(rbacv1beta1.AddToScheme, rbacv1beta1.SchemeGroupVersion)
	addVirtual(registerv1alpha1.AddToScheme, registerv1alpha1.SchemeGroupVersion)
	addVirtual(searchv1alpha1.AddToScheme, searchv1alpha1.SchemeGroupVersion)
	add(workv1.AddToScheme, workv1.SchemeGroupVersion)

	addInternal(&addon.AddOnDeploymentConfig{}, &addon.AddOnDeploymentConfigList{}, addonv1alpha1.SchemeGroupVersion)
	addInternal(&addon.ClusterManagementAddOn{}, &addon.ClusterManagementAddOnList{}, addonv1alpha1.SchemeGroupVersion)
	addInternal(&addon.ManagedClusterAddOn{}, &addon.ManagedClusterAddOnList{}, addonv1alpha1.SchemeGroupVersion)
	addInternal(&authentication.ManagedServiceAccount{}, &authentication.ManagedServiceAccountList{},
		authenticationv1beta1.SchemeGroupVersion, authenticationv1alpha1.SchemeGroupVersion, proxyv1alpha1.SchemeGroupVersion)
	addInternal(&authentication.ManagedServiceAccountBinding{}, &authentication.ManagedServiceAccountBindingList{}, authenticationv1alpha1.SchemeGroupVersion)
	addInternal(&cluster.ManagedCluster{}, &cluster.ManagedClusterList{}, clusterv1.SchemeGroupVersion)
	addInternal(&cluster.ManagedClusterSet{}, &cluster.ManagedClusterSetList{}, clusterv1beta2.SchemeGroupVersion)
	addInternal(&cluster.ManagedClusterSetBinding{}, &cluster.ManagedClusterSetBindingList{}, clusterv1beta2.SchemeGroupVersion)
	addInternal(&rbac.ClusterPermission{}, &rbac.ClusterPermissionList{}, rbacv1alpha1.SchemeGroupVersion)
	addInternal(&rbac.ClusterNamespace{}, &rbac.ClusterNamespaceList{}, rbacv1alpha1.SchemeGroupVersion)
	addInternal(&rbac.MulticlusterRoleAssignment{}, &rbac.MulticlusterRoleAssignmentList{}, rbacv1beta1.SchemeGroupVersion)
	addInternal(&work.ManifestWork{}, &work.ManifestWorkList{}, workv1.SchemeGroupVersion)
}

// add adds the types of a version after those of the versions that the group prefers.
func add(toScheme func(*runtime.Scheme) error, version schema.GroupVersion) {
	preferred := Scheme.PrioritizedVersionsForGroup(version.Group)
	utilruntime.Must(toScheme(Scheme))
	utilruntime.Must(Scheme.SetVersionPriority(append(preferred, version)...))
}

// addVirtual adds the types of a version that nothing or only the server stores. They are also the internal types.
func addVirtual(toScheme func(*runtime.Scheme) error, version schema.GroupVersion) {
	own := runtime.NewScheme()
	utilruntime.Must(toScheme(own))
	for kind, goType := range own.KnownTypes(version) {
		if !strings.HasPrefix(goType.PkgPath(), "k8s.io/") {
			Scheme.AddKnownTypeWithName(internalKind(version.WithKind(kind)), reflect.New(goType).Interface().(runtime.Object))
		}
	}
	add(toScheme, version)
}

// addInternal adds an internal type and its list, with their conversions from and to the types of the same name and fields
// in some versions.
func addInternal(obj, list runtime.Object, versions ...schema.GroupVersion) {
	for _, version := range versions {
		for _, internal := range []runtime.Object{obj, list} {
			kind := version.WithKind(reflect.TypeOf(internal).Elem().Name())
			versioned, err := Scheme.New(kind)
			utilruntime.Must(err)
			Scheme.AddKnownTypeWithName(internalKind(kind), internal)
			utilruntime.Must(Scheme.AddConversionFunc(internal, versioned, convertSame))
			utilruntime.Must(Scheme.AddConversionFunc(versioned, internal, convertSame))
		}
	}
}

func internalKind(kind schema.GroupVersionKind) schema.GroupVersionKind {
	return kind.GroupKind().WithVersion(runtime.APIVersionInternal)
}

// convertSame is a conversion.ConversionFunc between two types that have the same fields, between their lists, and from or
// to a type with further fields that are never stored.
func convertSame(in, out any, scope conversion.Scope) error {
	from, to := reflect.ValueOf(in).Elem(), reflect.ValueOf(out).Elem()
	// The scheme sets the first field, TypeMeta.
	for i := 1; i < min(from.NumField(), to.NumField()); i++ {
		source, target := from.Field(i), to.Field(i)
		if source.Type() == target.Type() {
			target.Set(source)
			continue
		}
		if source.IsNil() {
			continue
		}
		items := reflect.MakeSlice(target.Type(), source.Len(), source.Len())
		for j := range source.Len() {
			if err := scope.Convert(source.Index(j).Addr().Interface(), items.Index(j).Addr().Interface()); err != nil {
				return err
			}
		}
		target.Set(items)
	}
	return nil
}
