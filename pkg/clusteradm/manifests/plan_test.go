package manifests

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
)

// TestClusterClaimDefinitionOfOthersStays checks that a plan leaves the CustomResourceDefinition of ClusterClaims unchanged if
// another program has installed it.
func TestClusterClaimDefinitionOfOthersStays(t *testing.T) {
	objects, err := Read("agent/managed/clusterclaims.crd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	live := objects[0].DeepCopy()
	live.SetAnnotations(map[string]string{"installed-by": "another program"})
	live.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "another-program", Operation: metav1.ManagedFieldsOperationUpdate}})
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: KindCRD}, meta.RESTScopeRoot)
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), live)
	applier := &Applier{client: client, mapper: mapper}
	changes, err := applier.Plan(t.Context(), objects...)
	if err != nil || len(changes) != 1 || !changes[0].none() {
		t.Errorf("Plan() = %+v, %v, want no change", changes, err)
	}
	for _, action := range client.Actions() {
		if action.GetVerb() != "get" {
			t.Errorf("Plan() sends %s, want get only", action.GetVerb())
		}
	}
}
