package migrate

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
)

// TestEndWatches checks that the objects of CustomResourceDefinitions are not deleted before all API servers of a hub have ended
// their watches, and not at all if one of them does not.
func TestEndWatches(t *testing.T) {
	for name, test := range map[string]struct {
		kept string
		ends bool
		want time.Duration
		err  string
	}{
		"ended":      {handover.KeptVersion, true, watchesEnd, ""},
		"not ended":  {handover.KeptVersion, false, 2 * watchesEnd, "the hub has not ended them"},
		"no version": {"v1", true, 0, "it has no version " + handover.KeptVersion},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				crd := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"versions": []any{
					map[string]any{"name": test.kept, "schema": map[string]any{"openAPIV3Schema": map[string]any{}}},
				}}}}
				crd.SetGroupVersionKind(handover.CustomResourceDefinitions.GroupVersion().WithKind("CustomResourceDefinition"))
				kind := &handover.CustomKind{Kind: handover.Kinds[0], CRD: crd, Version: handover.Kinds[0].Resource.GroupVersion()}
				crd.SetName(kind.Resource.GroupResource().String())
				client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
					handover.CustomResourceDefinitions: "CustomResourceDefinitionList", kind.Kept(): kind.Name + "List",
				}, crd)
				open := watch.NewFake()
				client.PrependWatchReactor("*", func(clienttesting.Action) (bool, watch.Interface, error) { return true, open, nil })
				client.PrependReactor("update", "customresourcedefinitions", func(clienttesting.Action) (bool, runtime.Object, error) {
					if test.ends {
						open.Stop()
					}
					return false, nil, nil
				})
				m := &migration{Clients: &cli.Clients{Dynamic: client}, kinds: []*handover.CustomKind{kind}}
				begin := time.Now()
				err := m.endWatches(t.Context())
				if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
					t.Errorf("endWatches() = %v, want %q", err, test.err)
				}
				if took := time.Since(begin); took != test.want {
					t.Errorf("endWatches() takes %s, want %s", took, test.want)
				}
			})
		})
	}
}
