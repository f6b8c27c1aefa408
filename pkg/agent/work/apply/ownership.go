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
// fields that another ManifestWork or an upstream OCM agent has left. A guarded ManifestWork takes over nothing.
func (a *Applier) own(t *Task, live *unstructured.Unstructured) ownEntry {
	held := sync.OnceValue(func() bool { return a.Guard != nil || a.Held(t.ID(), live) })
	return func(entry metav1.ManagedFieldsEntry) bool {
		switch {
		case entry.Subresource != "":
			return false
		case entry.Manager == a.Manager || a.Managers.Wrote(t.ID(), entry.Manager):
			return true
		}
		return strings.HasPrefix(entry.Manager, workv1.DefaultFieldManager) && !held()
	}
}

type ownEntry decide.OwnEntry

// without returns own without the entries of a manager with an operation.
func (own ownEntry) without(manager string, operation metav1.ManagedFieldsOperationType) func(metav1.ManagedFieldsEntry) bool {
	return func(entry metav1.ManagedFieldsEntry) bool {
		return !(entry.Manager == manager && entry.Operation == operation) && own(entry)
	}
}

// updated returns a live object as the update strategy Update changes it: with all fields of the manifest,
// and without the fields that only the ManifestWork set, in an earlier version of the manifest or with another
// strategy. Its own fields include defaults of the server, which the server sets again.
func (a *Applier) updated(t *Task, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	result, entries := a.Guard.Enforce(live, t.Object), live.GetManagedFields()
	own := a.own(t, live)
	former := own.without(a.Manager, metav1.ManagedFieldsOperationUpdate)
	stale := former
	if a.Stale {
		stale = own
	}
	if !slices.ContainsFunc(entries, stale) {
		return result, nil
	}
	if err := decide.DropOwned(result, live, t.Object, decide.OwnEntry(own), stale); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(entries, former) || decide.SameObject(live, result) {
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
