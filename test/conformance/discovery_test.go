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
				t.Fatalf("not served: %v", list.APIResources)
			}
			if main.Kind != k.Kind || main.SingularName != k.Singular || main.Namespaced == k.ClusterScoped {
				t.Errorf("got %s, singular %s, namespaced %t", main.Kind, main.SingularName, main.Namespaced)
			}
			if !slices.Equal(main.ShortNames, k.ShortNames) || !slices.Equal(main.Categories, k.Categories) {
				t.Errorf("got short names %v, categories %v", main.ShortNames, main.Categories)
			}
			if main.StorageVersionHash == "" {
				t.Error("no storage version hash, by which migrations know that they are due")
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
					t.Errorf("%s is not served", subresource)
				}
			}
		})
	}
}

func wantVerbs(t *testing.T, resource metav1.APIResource, verbs ...string) {
	t.Helper()
	got := slices.Sorted(slices.Values(resource.Verbs))
	if !slices.Equal(got, verbs) {
		t.Errorf("%s: got verbs %v, want %v", resource.Name, got, verbs)
	}
}

// TestPreferredVersion checks that kubectl gets the version that the table prefers.
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
			t.Errorf("group %s prefers %s, but %s prefers %s", k.version.Group, got, k.Name, versions[0])
		}
	}
}

// versionsIn are the versions of the resource in a group, preferred first.
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
			t.Errorf("%s of %s: %t that it is among %v", k.Name, k.version.Group, listed, got)
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
	for _, row := range apiserver.Virtual(apiserver.SearchDependencies{}) {
		versions[row.Version] = true
	}
	for version := range versions {
		name := version.Version + "." + version.Group
		if !slices.ContainsFunc(manifests, func(m *unstructured.Unstructured) bool { return m.GetName() == name }) {
			t.Errorf("artifacts/apiservice has none for %s", version)
		}
		registration, err := client.ApiregistrationV1().APIServices().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Error(err)
			continue
		}
		if registration.Spec.InsecureSkipTLSVerify || len(registration.Spec.CABundle) == 0 {
			t.Errorf("%s does not verify the server's certificate", name)
		}
		if !available(registration) {
			t.Errorf("%s is not Available: %v", name, registration.Status.Conditions)
		}
	}
	for _, manifest := range manifests {
		version, group, _ := strings.Cut(manifest.GetName(), ".")
		if !versions[schema.GroupVersion{Group: group, Version: version}] {
			t.Errorf("APIService %s is for a version that is not in the table", manifest.GetName())
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
