package install

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
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

// TestUnservedKeepsAPIServicesOfOthers checks that init removes only APIServices that name the server: after
// --before-migration, the hub still serves its CustomResourceDefinitions itself.
func TestUnservedKeepsAPIServicesOfOthers(t *testing.T) {
	const ours, register, local, other = "v1beta1.proxy.open-cluster-management.io", "v1alpha1.register.open-cluster-management.io", "v1.work.open-cluster-management.io", "v1.cluster.open-cluster-management.io"
	apiService := func(name string, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiregistration.k8s.io/v1", "kind": cli.KindAPIService, "metadata": map[string]any{"name": name}, "spec": spec,
		}}
	}
	forwards := func(service string) map[string]any {
		return map[string]any{"service": map[string]any{"namespace": manifests.HubNamespace, "name": service, "port": int64(443)}}
	}
	kube := kubefake.NewClientset()
	kube.Resources = []*metav1.APIResourceList{{GroupVersion: "apiregistration.k8s.io/v1", APIResources: []metav1.APIResource{{Name: "apiservices", Kind: cli.KindAPIService}}}}
	i := &initializing{installed: &installedHub{settings: newHubSettings()}, hub: newHubSettings(), applier: manifests.NewApplier(cli.Environment{}, &cli.Clients{Kube: kube, Dynamic: dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(),
		apiService(ours, forwards(manifests.ServerName)), apiService(register, forwards(manifests.ServerName)), apiService(local, map[string]any{}), apiService(other, forwards("other")))})}
	i.hub.existingOCM = true
	gone, err := i.unserved(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, change := range gone {
		names = append(names, change.Manifest.GetName())
	}
	if slices.Sort(names); !slices.Equal(names, []string{register, ours}) {
		t.Errorf("APIServices that init --before-migration=false removes = %q, want only those of the server", names)
	}
}
