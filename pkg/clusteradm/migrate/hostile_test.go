package migrate

import (
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
)

// TestMigrationListsRefused checks that a migration in each direction names all objects of all kinds that the other side
// refuses, and that these end nothing.
func TestMigrationListsRefused(t *testing.T) {
	names := []string{"good", "invalid", "terminating", "missing"}
	for _, to := range []string{toServer, toCRDs} {
		lists := map[schema.GroupVersionResource]string{}
		var kinds []*handover.CustomKind
		for _, kind := range handover.Kinds {
			if !kind.OCM {
				continue
			}
			k := &handover.CustomKind{Kind: kind, CRD: &unstructured.Unstructured{Object: map[string]any{}}, Version: kind.Resource.GroupVersion()}
			kinds = append(kinds, k)
			lists[k.Served()], lists[k.Kept()] = kind.Name+"List", kind.Name+"List"
		}
		client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists)
		for _, kind := range kinds {
			for _, name := range names {
				object := &unstructured.Unstructured{Object: map[string]any{}}
				object.SetGroupVersionKind(kind.Version.WithKind(kind.Name))
				object.SetName(name)
				object.SetUID(types.UID(kind.Name + name))
				// Owners as anybody may write them.
				object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "a/b/c", Kind: "ClusterPermission", Name: "gone", UID: "gone"}})
				if err := client.Tracker().Create(kind.Served(), object, ""); err != nil {
					t.Fatal(err)
				}
			}
		}
		client.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
			object := action.(clienttesting.CreateAction).GetObject().(*unstructured.Unstructured)
			resource := action.GetResource().GroupResource()
			content, imported, _ := unstructured.NestedMap(object.Object, "spec", "object")
			if imported {
				object = &unstructured.Unstructured{Object: content}
				if object.GetName() != "good" {
					return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Import"}, object.GetName(), nil)
				}
				return true, &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"object": content}}}, nil
			}
			switch object.GetName() {
			case "invalid":
				return true, nil, apierrors.NewInvalid(object.GroupVersionKind().GroupKind(), "invalid", nil)
			case "terminating":
				return true, nil, apierrors.NewForbidden(resource, "terminating", errors.New("the namespace is being terminated"))
			case "missing":
				return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "missing")
			}
			return false, nil, nil
		})
		m := &migration{to: to, Clients: &cli.Clients{Dynamic: client, Kube: fake.NewClientset()}, kinds: kinds}
		var counts map[string]int
		var findings []cli.Finding
		var err error
		if to == toServer {
			counts, findings, err = m.copyToServer(t.Context(), kinds, metav1.DryRunAll)
		} else {
			counts, findings, err = m.copyFromServer(t.Context(), metav1.DryRunAll)
		}
		if err != nil || len(findings) != (len(names)-1)*len(kinds) {
			t.Errorf("copy to %s = %v, %v, want %d findings and no error", to, findings, err, (len(names)-1)*len(kinds))
		}
		for _, kind := range kinds {
			if counts[kind.Name] != len(names) {
				t.Errorf("copy to %s counts %d of kind %s, want %d", to, counts[kind.Name], kind.Name, len(names))
			}
			for _, name := range names[1:] {
				if !slices.ContainsFunc(findings, func(f cli.Finding) bool {
					return f.State == cli.StateBad && strings.HasPrefix(f.Subject, strings.ToLower(kind.Name)+".") && strings.HasSuffix(f.Subject, "/"+name)
				}) {
					t.Errorf("copy to %s: no finding about %s of kind %s", to, name, kind.Name)
				}
			}
		}
	}
}
