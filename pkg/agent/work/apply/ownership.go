package apply

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// own reports whether the ManifestWork wrote an entry of the managed fields of a live object, whatever its
// update strategy was at that time. If no other ManifestWork applies the object, that includes the
// fields that another ManifestWork or an upstream OCM agent has left.
func (a *Applier) own(t *Task, live *unstructured.Unstructured) ownEntry {
	managers := append(t.Former.Managers(), a.Manager)
	held := sync.OnceValue(func() bool { return a.Held(t.ID(), live) })
	return func(entry metav1.ManagedFieldsEntry) bool {
		if entry.Subresource != "" {
			return false
		}
		return slices.Contains(managers, entry.Manager) || strings.HasPrefix(entry.Manager, workv1.DefaultFieldManager) && !held()
	}
}

type ownEntry decide.OwnEntry

// without returns own without the entries of a manager with an operation.
func (own ownEntry) without(manager string, operation metav1.ManagedFieldsOperationType) func(metav1.ManagedFieldsEntry) bool {
	return func(entry metav1.ManagedFieldsEntry) bool {
		return !(entry.Manager == manager && entry.Operation == operation) && own(entry)
	}
}

// updated returns a live object as the update strategy Update changes it. It contains no fields that the
// ManifestWork set with another strategy.
func (a *Applier) updated(t *Task, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	result := decide.Updated(t.Item, t.Former, live)
	if a.Guard != nil {
		return result, nil
	}
	own := a.own(t, live)
	former := own.without(a.Manager, metav1.ManagedFieldsOperationUpdate)
	if slices.Contains(t.Former.Managers(), a.Manager) {
		// The record does not contain the fields of an object that was created with CreateOnly.
		former = own
	}
	if !slices.ContainsFunc(live.GetManagedFields(), former) {
		return result, nil
	}
	if err := decide.DropOwned(result, live, t.Object, decide.OwnEntry(own), former); err != nil {
		return nil, err
	}
	if decide.SameObject(live, result) {
		return result, nil
	}
	return result, decide.TakeOver(result, decide.OwnEntry(own), a.Manager, metav1.ManagedFieldsOperationUpdate)
}

// takeOver makes manager own, by server-side apply, the fields of all own entries. Then an apply
// removes those that the manifest does not set, and has no conflicts with them.
func (a *Applier) takeOver(ctx context.Context, t *Task, live *unstructured.Unstructured, own ownEntry, manager string) (*unstructured.Unstructured, error) {
	if err := a.begin(ctx, t); err != nil {
		return nil, err
	}
	result := live.DeepCopy()
	if err := decide.TakeOver(result, decide.OwnEntry(own), manager, metav1.ManagedFieldsOperationApply); err != nil {
		return nil, err
	}
	patch, err := json.Marshal([]map[string]any{
		{"op": "replace", "path": "/metadata/managedFields", "value": result.GetManagedFields()},
		{"op": "replace", "path": "/metadata/resourceVersion", "value": live.GetResourceVersion()},
	})
	if err != nil {
		return nil, err
	}
	return a.resource(t).Patch(ctx, t.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: a.Manager})
}

// fieldsOf returns the hash of the fields that a manager owns by server-side apply.
func fieldsOf(entries []metav1.ManagedFieldsEntry, manager string) string {
	var fields []*metav1.FieldsV1
	for _, entry := range entries {
		if entry.Manager == manager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" {
			fields = append(fields, entry.FieldsV1)
		}
	}
	hash, _ := decide.Hash(fields) // Hash does not fail: the fields were decoded from JSON
	return hash
}
