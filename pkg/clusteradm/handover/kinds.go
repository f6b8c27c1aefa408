package handover

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/pager"

	addonv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	addonv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1beta1"
	authenticationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1alpha1"
	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	rbacv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
)

// Kinds that need something else than others.
const (
	KindRegistration      = "ManagedClusterRegistration"
	KindManagedCluster    = "ManagedCluster"
	KindClusterSet        = "ManagedClusterSet"
	KindServiceAccount    = "ManagedServiceAccount"
	KindClusterPermission = "ClusterPermission"
	KindManifestWork      = "ManifestWork"
)

// Kind is a kind that the server stores.
type Kind struct {
	Name     string
	Resource schema.GroupVersionResource
	// OCM is true if OCM stores the kind in a CustomResourceDefinition. Older is another version that it and the server have.
	OCM   bool
	Older schema.GroupVersion
}

// Kinds are all kinds that the server stores, in the order in which they move: owners before dependents.
var Kinds = []Kind{
	// The server would create the registration of a ManagedCluster without one.
	{Name: KindRegistration, Resource: registerv1alpha1.SchemeGroupVersion.WithResource("managedclusters")},
	{Name: KindManagedCluster, Resource: clusterv1.SchemeGroupVersion.WithResource("managedclusters"), OCM: true},
	{Name: KindClusterSet, Resource: clusterv1beta2.SchemeGroupVersion.WithResource("managedclustersets"), OCM: true},
	{Name: "ManagedClusterSetBinding", Resource: clusterv1beta2.SchemeGroupVersion.WithResource("managedclustersetbindings"), OCM: true},
	{Name: "ClusterManagementAddOn", Resource: addonv1beta1.SchemeGroupVersion.WithResource("clustermanagementaddons"), OCM: true, Older: addonv1alpha1.SchemeGroupVersion},
	{Name: "AddOnDeploymentConfig", Resource: addonv1beta1.SchemeGroupVersion.WithResource("addondeploymentconfigs"), OCM: true, Older: addonv1alpha1.SchemeGroupVersion},
	{Name: "ManagedClusterAddOn", Resource: addonv1beta1.SchemeGroupVersion.WithResource("managedclusteraddons"), OCM: true, Older: addonv1alpha1.SchemeGroupVersion},
	{Name: "ClusterNamespace", Resource: rbacv1alpha1.SchemeGroupVersion.WithResource("clusternamespaces")},
	{Name: KindServiceAccount, Resource: authenticationv1beta1.SchemeGroupVersion.WithResource("managedserviceaccounts"), OCM: true, Older: authenticationv1alpha1.SchemeGroupVersion},
	{Name: "ManagedServiceAccountBinding", Resource: authenticationv1alpha1.SchemeGroupVersion.WithResource("managedserviceaccountbindings")},
	{Name: "MulticlusterRoleAssignment", Resource: rbacv1beta1.SchemeGroupVersion.WithResource("multiclusterroleassignments"), OCM: true},
	{Name: KindClusterPermission, Resource: rbacv1alpha1.SchemeGroupVersion.WithResource("clusterpermissions"), OCM: true},
	{Name: KindManifestWork, Resource: workv1.SchemeGroupVersion.WithResource("manifestworks"), OCM: true},
}

// versions returns the versions that the server serves, the best first.
func (k *Kind) versions() []schema.GroupVersion {
	versions := []schema.GroupVersion{k.Resource.GroupVersion()}
	if !k.Older.Empty() {
		versions = append(versions, k.Older)
	}
	return versions
}

// SwitchedVersions returns the versions that the hub forwards to the server after a migration, and did not before.
func SwitchedVersions() []schema.GroupVersion {
	versions := []schema.GroupVersion{registerv1alpha1.SchemeGroupVersion}
	for _, kind := range Kinds {
		if kind.OCM {
			versions = append(versions, kind.versions()...)
		}
	}
	slices.SortFunc(versions, func(a, b schema.GroupVersion) int {
		return slices.Compare([]string{a.Group, a.Version}, []string{b.Group, b.Version})
	})
	return slices.Compact(versions)
}

// CustomResourceDefinitions is the resource of CustomResourceDefinitions.
var CustomResourceDefinitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// KeptVersion is the version by which objects of OCM stay accessible while the hub forwards the others to the server.
const KeptVersion = "migration"

// CustomKind is a kind that has a CustomResourceDefinition on the hub.
type CustomKind struct {
	Kind
	CRD *unstructured.Unstructured
	// Version is the version in which the CustomResourceDefinition stores objects, and which the server serves too.
	Version schema.GroupVersion
}

// Served is the resource that users read: from the server after a migration, or else from the CustomResourceDefinition.
func (k *CustomKind) Served() schema.GroupVersionResource {
	return k.Version.WithResource(k.Resource.Resource)
}

// Kept is the resource in the CustomResourceDefinition, whatever the hub forwards.
func (k *CustomKind) Kept() schema.GroupVersionResource {
	return schema.GroupVersion{Group: k.Resource.Group, Version: KeptVersion}.WithResource(k.Resource.Resource)
}

// HasStatus reports whether the CustomResourceDefinition has the subresource status.
func (k *CustomKind) HasStatus() bool {
	return slices.ContainsFunc(Versions(k.CRD), func(v Version) bool { return v.Name == k.Version.Version && v.Subresources["status"] != nil })
}

// definition is what this package reads of a CustomResourceDefinition.
type definition struct {
	Spec struct {
		Group      string    `json:"group"`
		Versions   []Version `json:"versions"`
		Conversion struct {
			Strategy string `json:"strategy"`
		} `json:"conversion"`
	} `json:"spec"`
	Status struct {
		StoredVersions []string `json:"storedVersions"`
	} `json:"status"`
}

// Version is a version of a CustomResourceDefinition.
type Version struct {
	Name         string         `json:"name"`
	Served       bool           `json:"served"`
	Storage      bool           `json:"storage"`
	Subresources map[string]any `json:"subresources"`
}

func parse(crd *unstructured.Unstructured) definition {
	var d definition
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(crd.Object, &d) // the hub has validated it
	return d
}

// Versions returns the versions of a CustomResourceDefinition.
func Versions(crd *unstructured.Unstructured) []Version { return parse(crd).Spec.Versions }

// HasVersion reports whether a CustomResourceDefinition is of a group and has a version.
func HasVersion(crd *unstructured.Unstructured, version schema.GroupVersion) bool {
	spec := parse(crd).Spec
	return spec.Group == version.Group && slices.ContainsFunc(spec.Versions, func(v Version) bool { return v.Name == version.Version })
}

// ReadKinds returns the kinds that have a CustomResourceDefinition, and what prevents their migration.
func ReadKinds(ctx context.Context, client dynamic.Interface) ([]*CustomKind, []cli.Finding, error) {
	var kinds []*CustomKind
	var findings []cli.Finding
	for _, kind := range Kinds {
		if !kind.OCM {
			continue
		}
		crd, err := cli.Optional(client.Resource(CustomResourceDefinitions).Get(ctx, kind.Resource.GroupResource().String(), metav1.GetOptions{}))
		if err != nil {
			return nil, nil, err
		}
		if crd == nil {
			continue
		}
		found, content := &CustomKind{Kind: kind, CRD: crd}, parse(crd)
		subject := "CustomResourceDefinition " + crd.GetName()
		for _, version := range content.Spec.Versions {
			if !version.Served || version.Name == KeptVersion {
				continue
			}
			shared := schema.GroupVersion{Group: kind.Resource.Group, Version: version.Name}
			if !slices.Contains(kind.versions(), shared) {
				findings = append(findings, cli.Bad(subject, fmt.Sprintf("the server does not serve version %s, which would show old objects", version.Name),
					"set served: false for this version, if no client uses it"))
				continue
			}
			// The kept version has no conversion, so it must be like the version in which objects are stored.
			if version.Storage || found.Version.Empty() {
				found.Version = shared
			}
		}
		if found.Version.Empty() {
			findings = append(findings, cli.Bad(subject, "it has no version that the server serves", "upgrade OCM"))
			continue
		}
		if stored := content.Status.StoredVersions; content.Spec.Conversion.Strategy == "Webhook" && !slices.Equal(stored, []string{found.Version.Version}) {
			findings = append(findings, cli.Bad(subject, fmt.Sprintf("objects may be stored in the versions %q, which a webhook converts", stored),
				"migrate the stored objects to one version, and remove the others from status.storedVersions"))
		}
		kinds = append(kinds, found)
	}
	return kinds, findings, nil
}

// ListAll returns all objects of a resource by namespace and name.
func ListAll(ctx context.Context, client dynamic.Interface, resource schema.GroupVersionResource) (map[string]*unstructured.Unstructured, error) {
	objects := map[string]*unstructured.Unstructured{}
	err := cli.Persist(ctx, func(ctx context.Context) error {
		clear(objects)
		return pager.New(pager.SimplePageFunc(func(options metav1.ListOptions) (runtime.Object, error) {
			return client.Resource(resource).List(ctx, options)
		})).EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
			object := item.(*unstructured.Unstructured)
			objects[object.GetNamespace()+"/"+object.GetName()] = object
			return nil
		})
	})
	return objects, cli.Prefix(err, "list %s", resource.GroupResource())
}
