package conformance

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"open-cluster-management.io/hub-apiserver/pkg/apiserver"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

func TestDiscovery(t *testing.T) {
	t.Parallel()
	for _, k := range served() {
		t.Run(k.arg(), func(t *testing.T) {
			list, err := shared.kube.Discovery().ServerResourcesForGroupVersion(k.version.String())
			if err != nil {
				t.Fatal(err)
			}
			resources := map[string]metav1.APIResource{}
			for _, resource := range list.APIResources {
				resources[resource.Name] = resource
			}
			main, ok := resources[k.Name]
			if !ok {
				t.Fatalf("resources of %s = %v, want %s included", k.version, list.APIResources, k.Name)
			}
			if main.Kind != k.Kind || main.SingularName != k.Singular || main.Namespaced == k.ClusterScoped {
				t.Errorf("kind %s, singular %s, namespaced %t, want %s, %s, %t",
					main.Kind, main.SingularName, main.Namespaced, k.Kind, k.Singular, !k.ClusterScoped)
			}
			if !slices.Equal(main.ShortNames, k.ShortNames) || !slices.Equal(main.Categories, k.Categories) {
				t.Errorf("short names %v, categories %v, want %v, %v", main.ShortNames, main.Categories, k.ShortNames, k.Categories)
			}
			if main.StorageVersionHash == "" {
				t.Error("storageVersionHash is empty, but storage version migration requires it")
			}
			if k.ServerOwned {
				wantVerbs(t, main, "get", "list", "watch")
			} else {
				wantVerbs(t, main, "create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
			}
			if k.HasStatus() {
				wantVerbs(t, resources[k.Name+"/status"], "get", "patch", "update")
			}
			for _, subresource := range k.subresources() {
				if _, ok := resources[k.Name+"/"+subresource]; !ok {
					t.Errorf("subresource %s of %s is not in discovery", subresource, k.Name)
				}
			}
		})
	}
}

func wantVerbs(t *testing.T, resource metav1.APIResource, verbs ...string) {
	t.Helper()
	got := slices.Sorted(slices.Values(resource.Verbs))
	if !slices.Equal(got, verbs) {
		t.Errorf("verbs of %s = %v, want %v", resource.Name, got, verbs)
	}
}

// TestPreferredVersion checks that discovery prefers the same version as the table of resources.
func TestPreferredVersion(t *testing.T) {
	t.Parallel()
	groups, err := shared.kube.Discovery().ServerGroups()
	if err != nil {
		t.Fatal(err)
	}
	preferred := map[string]string{}
	for _, group := range groups.Groups {
		preferred[group.Name] = group.PreferredVersion.Version
	}
	for _, k := range served() {
		if got := preferred[k.version.Group]; got == "" {
			t.Errorf("group %s is not in discovery", k.version.Group)
		} else if versions := k.versionsIn(k.version.Group); len(versions) > 1 && got != versions[0] {
			t.Errorf("preferred version of group %s = %s, want %s as for %s", k.version.Group, got, versions[0], k.Name)
		}
	}
}

// versionsIn returns the versions of the resource in a group, the preferred version first.
func (k kind) versionsIn(group string) []string {
	var out []string
	for _, version := range k.Versions {
		if version.Group == group {
			out = append(out, version.Version)
		}
	}
	return out
}

func TestAPIResources(t *testing.T) {
	t.Parallel()
	stdout, stderr, err := shared.kubectl(t, "", "api-resources", "--categories=ocm", "--output=name")
	if err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	got := strings.Fields(stdout)
	for _, k := range served() {
		if listed := slices.Contains(got, k.Name+"."+k.version.Group); listed != slices.Contains(k.Categories, "ocm") {
			t.Errorf("kubectl api-resources --categories=ocm = %v, contains %s.%s = %t, want %t",
				got, k.Name, k.version.Group, listed, !listed)
		}
	}
}

func TestAPIServices(t *testing.T) {
	t.Parallel()
	var manifests []*unstructured.Unstructured
	for _, dir := range []string{".", "optional"} {
		found, err := localhub.ReadManifests(filepath.Join(localhub.Root(), "artifacts", "apiservice", dir))
		if err != nil {
			t.Fatal(err)
		}
		manifests = append(manifests, found...)
	}
	client, err := aggregator.NewForConfig(shared.admin)
	if err != nil {
		t.Fatal(err)
	}
	versions := map[schema.GroupVersion]bool{}
	for _, k := range served() {
		versions[k.version] = true
	}
	for _, row := range apiserver.Virtual(apiserver.VirtualDependencies{}) {
		versions[row.Version] = true
	}
	for version := range versions {
		name := version.Version + "." + version.Group
		if !slices.ContainsFunc(manifests, func(m *unstructured.Unstructured) bool { return m.GetName() == name }) {
			t.Errorf("artifacts/apiservice has no APIService for %s", version)
		}
		registration, err := client.ApiregistrationV1().APIServices().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Error(err)
			continue
		}
		if registration.Spec.InsecureSkipTLSVerify || len(registration.Spec.CABundle) == 0 {
			t.Errorf("APIService %s: insecureSkipTLSVerify = %t, caBundle of %d bytes, want false and a bundle",
				name, registration.Spec.InsecureSkipTLSVerify, len(registration.Spec.CABundle))
		}
		if !available(registration) {
			t.Errorf("conditions of APIService %s = %v, want Available", name, registration.Status.Conditions)
		}
	}
	for _, manifest := range manifests {
		version, group, _ := strings.Cut(manifest.GetName(), ".")
		if !versions[schema.GroupVersion{Group: group, Version: version}] {
			t.Errorf("artifacts/apiservice has APIService %s, but the table of resources has no such version", manifest.GetName())
		}
	}
}

func available(registration *apiregistrationv1.APIService) bool {
	for _, condition := range registration.Status.Conditions {
		if condition.Type == apiregistrationv1.Available {
			return condition.Status == apiregistrationv1.ConditionTrue
		}
	}
	return false
}
