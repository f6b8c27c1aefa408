package clusteradm

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"

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
)

const (
	// keptVersion is the version of a CustomResourceDefinition by which its objects stay accessible while the hub
	// forwards its other versions to the server.
	keptVersion = "migration"
	// conversionAnnotation keeps the conversion of a CustomResourceDefinition. The kept version has no conversion.
	conversionAnnotation = "migration.open-cluster-management.io/conversion"
)

var customResourceDefinitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// migratedKind is a kind that moves between CustomResourceDefinitions and the server.
type migratedKind struct {
	kind     string
	resource schema.GroupResource
	// versions are the versions that the server serves.
	versions []schema.GroupVersion
}

// migratedKinds are in the order in which they move: owners before dependents.
var migratedKinds = []migratedKind{
	{"ManagedCluster", clusterv1.Resource("managedclusters"), []schema.GroupVersion{clusterv1.SchemeGroupVersion}},
	{"ManagedClusterSet", clusterv1beta2.Resource("managedclustersets"), []schema.GroupVersion{clusterv1beta2.SchemeGroupVersion}},
	{"ManagedClusterSetBinding", clusterv1beta2.Resource("managedclustersetbindings"), []schema.GroupVersion{clusterv1beta2.SchemeGroupVersion}},
	{"ClusterManagementAddOn", addonv1beta1.Resource("clustermanagementaddons"), []schema.GroupVersion{addonv1beta1.SchemeGroupVersion, addonv1alpha1.SchemeGroupVersion}},
	{"AddOnDeploymentConfig", addonv1beta1.Resource("addondeploymentconfigs"), []schema.GroupVersion{addonv1beta1.SchemeGroupVersion, addonv1alpha1.SchemeGroupVersion}},
	{"ManagedClusterAddOn", addonv1beta1.Resource("managedclusteraddons"), []schema.GroupVersion{addonv1beta1.SchemeGroupVersion, addonv1alpha1.SchemeGroupVersion}},
	{"ManagedServiceAccount", authenticationv1beta1.Resource("managedserviceaccounts"), []schema.GroupVersion{authenticationv1beta1.SchemeGroupVersion, authenticationv1alpha1.SchemeGroupVersion}},
	{"MulticlusterRoleAssignment", rbacv1beta1.Resource("multiclusterroleassignments"), []schema.GroupVersion{rbacv1beta1.SchemeGroupVersion}},
	{"ClusterPermission", rbacv1alpha1.Resource("clusterpermissions"), []schema.GroupVersion{rbacv1alpha1.SchemeGroupVersion}},
	{"ManifestWork", workv1.Resource("manifestworks"), []schema.GroupVersion{workv1.SchemeGroupVersion}},
}

// switchedVersions returns the versions that the hub forwards to the server after a migration, and did not before.
func switchedVersions() []schema.GroupVersion {
	versions := []schema.GroupVersion{registerv1alpha1.SchemeGroupVersion}
	for _, kind := range migratedKinds {
		versions = append(versions, kind.versions...)
	}
	slices.SortFunc(versions, func(a, b schema.GroupVersion) int {
		return slices.Compare([]string{a.Group, a.Version}, []string{b.Group, b.Version})
	})
	return slices.Compact(versions)
}

func apiServiceName(version schema.GroupVersion) string { return version.Version + "." + version.Group }

// customKind is a migrated kind that has a CustomResourceDefinition on the hub.
type customKind struct {
	migratedKind
	crd *unstructured.Unstructured
	// version is the version in which the CustomResourceDefinition stores objects, and which the server serves too.
	version schema.GroupVersion
}

func (k *customKind) resourceIn(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.resource.Group, Version: version, Resource: k.resource.Resource}
}

// served is the resource that users read: from the server after a migration, or else from the CustomResourceDefinition.
func (k *customKind) served() schema.GroupVersionResource { return k.resourceIn(k.version.Version) }

// kept is the resource in the CustomResourceDefinition, whatever the hub forwards.
func (k *customKind) kept() schema.GroupVersionResource { return k.resourceIn(keptVersion) }

func (k *customKind) hasStatus() bool {
	for _, version := range crdVersions(k.crd) {
		if version["name"] == k.version.Version {
			_, found, _ := unstructured.NestedMap(version, "subresources", "status")
			return found
		}
	}
	return false
}

func crdVersions(crd *unstructured.Unstructured) []map[string]any {
	list, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	var versions []map[string]any
	for _, item := range list {
		if version, ok := item.(map[string]any); ok {
			versions = append(versions, version)
		}
	}
	return versions
}

// readKinds returns the kinds that have a CustomResourceDefinition, and what prevents their migration.
func readKinds(ctx context.Context, client dynamic.Interface) ([]*customKind, []finding, error) {
	var kinds []*customKind
	var findings []finding
	for _, kind := range migratedKinds {
		crd, err := client.Resource(customResourceDefinitions).Get(ctx, kind.resource.String(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		found := &customKind{migratedKind: kind, crd: crd}
		subject := "CustomResourceDefinition " + crd.GetName()
		for _, version := range crdVersions(crd) {
			name, _ := version["name"].(string)
			if served, _ := version["served"].(bool); !served || name == keptVersion {
				continue
			}
			shared := schema.GroupVersion{Group: kind.resource.Group, Version: name}
			if !slices.Contains(kind.versions, shared) {
				findings = append(findings, bad(subject, fmt.Sprintf("the server does not serve version %s, which would show old objects", name),
					"set served: false for this version, if no client uses it"))
				continue
			}
			// The kept version has no conversion, so it must be like the version in which objects are stored.
			if storage, _ := version["storage"].(bool); storage || found.version.Empty() {
				found.version = shared
			}
		}
		if found.version.Empty() {
			findings = append(findings, bad(subject, "it has no version that the server serves", "upgrade OCM"))
			continue
		}
		stored, _, _ := unstructured.NestedStringSlice(crd.Object, "status", "storedVersions")
		if strategy, _, _ := unstructured.NestedString(crd.Object, "spec", "conversion", "strategy"); strategy == "Webhook" && !slices.Equal(stored, []string{found.version.Version}) {
			findings = append(findings, bad(subject, fmt.Sprintf("objects may be stored in the versions %q, which a webhook converts", stored),
				"migrate the stored objects to one version, and remove the others from status.storedVersions"))
		}
		kinds = append(kinds, found)
	}
	return kinds, findings, nil
}

// keepVersions adds or removes the version by which the objects of a CustomResourceDefinition stay accessible. A
// change of the versions also ends the watches of the kind, so that clients notice who serves it.
func keepVersions(ctx context.Context, client dynamic.Interface, kinds []*customKind, keep bool) error {
	for _, kind := range kinds {
		if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			crd, err := client.Resource(customResourceDefinitions).Get(ctx, kind.crd.GetName(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			if changed, err := keepVersion(crd, kind.version.Version, keep); err != nil || !changed {
				return err
			}
			_, err = client.Resource(customResourceDefinitions).Update(ctx, crd, metav1.UpdateOptions{FieldManager: fieldManager})
			return err
		}); err != nil {
			return fmt.Errorf("customresourcedefinitions/%s: %w", kind.crd.GetName(), err)
		}
	}
	if !keep {
		return nil
	}
	for _, kind := range kinds {
		if err := poll(ctx, func(ctx context.Context) (string, error) {
			_, err := client.Resource(kind.kept()).List(ctx, metav1.ListOptions{Limit: 1})
			if apierrors.IsNotFound(err) {
				return err.Error(), nil
			}
			return "", err
		}); err != nil {
			return fmt.Errorf("waiting for version %s of %s: %w", keptVersion, kind.resource, err)
		}
	}
	return nil
}

// keepVersion changes a CustomResourceDefinition, and reports whether that was necessary. The version is a copy of
// the given one.
func keepVersion(crd *unstructured.Unstructured, like string, keep bool) (bool, error) {
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		return false, err
	}
	named := func(name string) int {
		return slices.IndexFunc(versions, func(item any) bool {
			version, ok := item.(map[string]any)
			return ok && version["name"] == name
		})
	}
	if (named(keptVersion) >= 0) == keep {
		return false, nil
	}
	if !keep {
		if err := unstructured.SetNestedSlice(crd.Object, slices.Delete(versions, named(keptVersion), named(keptVersion)+1), "spec", "versions"); err != nil {
			return false, err
		}
		saved, found := crd.GetAnnotations()[conversionAnnotation]
		if !found {
			return true, nil
		}
		unstructured.RemoveNestedField(crd.Object, "metadata", "annotations", conversionAnnotation)
		var conversion map[string]any
		if err := json.Unmarshal([]byte(saved), &conversion); err != nil {
			return false, fmt.Errorf("annotation %s: %w", conversionAnnotation, err)
		}
		return true, unstructured.SetNestedMap(crd.Object, conversion, "spec", "conversion")
	}
	added := runtime.DeepCopyJSON(versions[named(like)].(map[string]any))
	added["name"], added["storage"], added["served"] = keptVersion, false, true
	delete(added, "additionalPrinterColumns")
	if err := unstructured.SetNestedSlice(crd.Object, append(versions, added), "spec", "versions"); err != nil {
		return false, err
	}
	conversion, found, err := unstructured.NestedMap(crd.Object, "spec", "conversion")
	if err != nil || !found || conversion["strategy"] != "Webhook" {
		return true, err
	}
	saved, err := json.Marshal(conversion)
	if err != nil {
		return false, err
	}
	annotations := crd.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[conversionAnnotation] = string(saved)
	crd.SetAnnotations(annotations)
	return true, unstructured.SetNestedMap(crd.Object, map[string]any{"strategy": "None"}, "spec", "conversion")
}

// describeKept changes the description of the kept version: a change of the specification without an effect on objects.
func describeKept(crd *unstructured.Unstructured, description string) error {
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		return err
	}
	for _, item := range versions {
		if version, ok := item.(map[string]any); ok && version["name"] == keptVersion {
			if err := unstructured.SetNestedField(version, description, "schema", "openAPIV3Schema", "description"); err != nil {
				return err
			}
		}
	}
	return unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions")
}

// listAll returns all objects of a resource by namespace and name.
func listAll(ctx context.Context, client dynamic.Interface, resource schema.GroupVersionResource) (map[string]*unstructured.Unstructured, error) {
	objects := map[string]*unstructured.Unstructured{}
	err := persist(ctx, func(ctx context.Context) error {
		clear(objects)
		return pager.New(pager.SimplePageFunc(func(options metav1.ListOptions) (runtime.Object, error) {
			return client.Resource(resource).List(ctx, options)
		})).EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
			object := item.(*unstructured.Unstructured)
			objects[object.GetNamespace()+"/"+object.GetName()] = object
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", resource.GroupResource(), err)
	}
	return objects, nil
}

// persist repeats a request while its error may be temporary, for at most a minute. It returns a conflict at once, because
// the same request would get it again.
func persist(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var conflict error
	if err := poll(ctx, func(ctx context.Context) (string, error) {
		err := request(ctx)
		if apierrors.IsConflict(err) {
			conflict = err
			return "", nil
		}
		return "", err
	}); err != nil {
		return err
	}
	return conflict
}
