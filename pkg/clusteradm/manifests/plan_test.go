package clusteradm

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
)

// TestClusterClaimDefinitionOfOthersStays checks that join leaves the CustomResourceDefinition of ClusterClaims unchanged if
// another program has installed it.
func TestClusterClaimDefinitionOfOthersStays(t *testing.T) {
	objects, err := manifests("agent/managed/clusterclaims.crd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	live := objects[0].DeepCopy()
	live.SetAnnotations(map[string]string{"installed-by": "another program"})
	live.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "another-program", Operation: metav1.ManagedFieldsOperationUpdate}})
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: kindCRD}, meta.RESTScopeRoot)
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), live)
	install := &installer{client: client, mapper: mapper}
	changes, err := install.plan(t.Context(), objects...)
	if err != nil || len(changes) != 1 || !changes[0].none() {
		t.Errorf("plan() = %+v, %v, want no change", changes, err)
	}
	for _, action := range client.Actions() {
		if action.GetVerb() != "get" {
			t.Errorf("plan() sends %s, want get only", action.GetVerb())
		}
	}
}

// TestProxyAccountsNamesWhatItHides checks that init names the CustomResourceDefinitions that an APIService would hide.
func TestProxyAccountsNamesWhatItHides(t *testing.T) {
	definition := func(name, group, version string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": kindCRD, "metadata": map[string]any{"name": name + "." + group},
			"spec": map[string]any{"group": group, "versions": []any{map[string]any{"name": version}}},
		}}
	}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{customResourceDefinitions: kindCRD + "List"},
		definition("managedproxyconfigurations", "proxy.open-cluster-management.io", "v1alpha1"),
		definition("others", "proxy.open-cluster-management.io", "v1"), definition("widgets", "example.com", "v1alpha1"))
	reasons, err := hiddenByProxyAccounts(t.Context(), &installer{client: client})
	if err != nil || len(reasons) != 1 || !strings.Contains(reasons[0], "managedproxyconfigurations.proxy.open-cluster-management.io") {
		t.Errorf("hiddenByProxyAccounts() = %q, %v, want managedproxyconfigurations only", reasons, err)
	}
}
