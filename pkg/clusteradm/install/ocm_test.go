package install

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
)

// TestProxyAccountsNamesWhatItHides checks that init names the CustomResourceDefinitions that an APIService would hide.
func TestProxyAccountsNamesWhatItHides(t *testing.T) {
	definition := func(name, group, version string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": manifests.KindCRD, "metadata": map[string]any{"name": name + "." + group},
			"spec": map[string]any{"group": group, "versions": []any{map[string]any{"name": version}}},
		}}
	}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{handover.CustomResourceDefinitions: manifests.KindCRD + "List"},
		definition("managedproxyconfigurations", "proxy.open-cluster-management.io", "v1alpha1"),
		definition("others", "proxy.open-cluster-management.io", "v1"), definition("widgets", "example.com", "v1alpha1"))
	reasons, err := (&initializing{Clients: &cli.Clients{APIServices: aggregatorfake.NewSimpleClientset().ApiregistrationV1().APIServices(), Dynamic: client}}).hiddenByProxyAccounts(t.Context())
	if err != nil || len(reasons) != 1 || !strings.Contains(reasons[0], "managedproxyconfigurations.proxy.open-cluster-management.io") {
		t.Errorf("hiddenByProxyAccounts() = %q, %v, want managedproxyconfigurations only", reasons, err)
	}
}
