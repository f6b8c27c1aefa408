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

// authors returns the authors of the managed fields of a live object. The ManifestWork writes with a manager and an
// operation now; with others, it wrote when it had another update strategy. If no other ManifestWork applies the
// object, the ManifestWork also is the author of fields that another ManifestWork or an upstream OCM agent has left. A
// guarded ManifestWork takes over nothing.
func (a *Applier) authors(t *Task, live *unstructured.Unstructured, manager string, operation metav1.ManagedFieldsOperationType) []decide.Author {
	held := sync.OnceValue(func() bool { return a.Guard != nil || a.Held(t.ID(), live) })
	entries := live.GetManagedFields()
	authors := make([]decide.Author, len(entries))
	for i, entry := range entries {
		own := entry.Manager == a.Manager || a.Managers.Wrote(t.ID(), entry.Manager) || strings.HasPrefix(entry.Manager, workv1.DefaultFieldManager) && !held()
		switch {
		case !own || entry.Subresource != "":
			authors[i] = decide.Other
		case entry.Manager == manager && entry.Operation == operation:
			authors[i] = decide.Current
		default:
			authors[i] = decide.Former
		}
	}
	return authors
}

// updated returns a live object as the update strategy Update changes it: with all fields of the manifest,
// and without the fields that only the ManifestWork set, in an earlier version of the manifest or with another
// strategy. Its own fields include defaults of the server, which the server sets again.
func (a *Applier) updated(t *Task, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	result, authors := a.Guard.Enforce(live, t.Object), a.authors(t, live, a.Manager, metav1.ManagedFieldsOperationUpdate)
	former := slices.Contains(authors, decide.Former)
	if !former && !(a.Stale && slices.Contains(authors, decide.Current)) {
		return result, nil
	}
	if err := decide.DropOwned(result, live, t.Object, authors, a.Stale); err != nil {
		return nil, err
	}
	if !former || decide.SameObject(live, result) {
		return result, nil
	}
	return result, decide.TakeOver(result, authors, a.Manager, metav1.ManagedFieldsOperationUpdate)
}

// takeOver makes manager own, by server-side apply, all fields that the ManifestWork wrote. Then an apply
// removes those that the manifest does not set, and has no conflicts with them.
func (a *Applier) takeOver(ctx context.Context, t *Task, live *unstructured.Unstructured, authors []decide.Author, manager string) (*unstructured.Unstructured, error) {
	if err := a.begin(ctx, t); err != nil {
		return nil, err
	}
	result := live.DeepCopy()
	if err := decide.TakeOver(result, authors, manager, metav1.ManagedFieldsOperationApply); err != nil {
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

// appliedFields returns the hash of the fields of an object that a manager owns by server-side apply.
func appliedFields(object *unstructured.Unstructured, manager string) string {
	var fields []*metav1.FieldsV1
	for _, entry := range object.GetManagedFields() {
		if entry.Manager == manager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" {
			fields = append(fields, entry.FieldsV1)
		}
	}
	return decide.Hash(fields)
}
