package migrate

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestMigrationWithdrawsPendingSpecs checks that a migration to CustomResourceDefinitions copies only specs that were
// delivered, because the controllers there deliver every spec.
func TestMigrationWithdrawsPendingSpecs(t *testing.T) {
	permission := func(name, role string, approval map[string]any) *unstructured.Unstructured {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "rbac.open-cluster-management.io/v1alpha1", "kind": "ClusterPermission", "spec": map[string]any{"role": role},
			"status": map[string]any{"conditions": []any{}},
		}}
		object.SetNamespace("c1")
		object.SetName(name)
		if approval != nil {
			object.Object["status"] = map[string]any{"approval": approval}
		}
		return object
	}
	pending := map[string]any{"generation": int64(2)}
	wanted := map[string]*unstructured.Unstructured{
		"delivered": permission("delivered", "view", nil),
		"approved":  permission("approved", "view", map[string]any{"approved": map[string]any{"generation": int64(2)}}),
		"changed":   permission("changed", "admin", map[string]any{"pending": pending, "delivered": map[string]any{"spec": map[string]any{"role": "view"}}}),
		"new":       permission("new", "admin", map[string]any{"pending": pending}),
	}
	c := &copying{}
	c.withdrawPending(wanted)
	if got, want := slices.Sorted(maps.Keys(wanted)), []string{"approved", "changed", "delivered"}; !slices.Equal(got, want) {
		t.Errorf("copied ClusterPermissions = %q, want %q", got, want)
	}
	for name, object := range wanted {
		if got := fmt.Sprint(object.Object["spec"]); got != "map[role:view]" {
			t.Errorf("copied spec of %s = %s, want the delivered one", name, got)
		}
	}
	if len(c.findings) != 2 {
		t.Errorf("findings = %v, want one for each pending spec", c.findings)
	}
}
