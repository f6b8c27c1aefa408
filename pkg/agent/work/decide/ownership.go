package decide

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// A ManifestWork writes an object under different field managers, depending on the update strategy. If
// the strategy changes, the API server takes the earlier manager for another writer: it reports conflicts
// with it, and keeps its fields. So the ManifestWork takes over the fields of its earlier managers.

// FieldManager returns the field manager of all writes of a ManifestWork except server-side apply.
// It is derived from the name of the AppliedManifestWork, so that managed fields show which
// ManifestWork set which field.
func FieldManager(record string) string {
	return workv1.DefaultFieldManager + "-" + Hash(record)[:10]
}

// managersAnnotation contains the Managers of an AppliedManifestWork, in JSON.
const managersAnnotation = "work.open-cluster-management.io/field-managers"

// maxManagers bounds the annotation, because all annotations of an object may take 256 KiB together. 1,500
// objects under one field manager take a third of it.
const maxManagers = 64 << 10

// Managers are the field managers under which a ManifestWork has applied objects server-side, each with the
// keys of the objects. They show which fields belong to the ManifestWork if another one applies an object, too.
type Managers map[string]sets.Set[string]

func managersKey(id ObjectID) string { return Hash(id.String())[:8] }

// Wrote reports whether the ManifestWork has applied an object under a field manager.
func (m Managers) Wrote(id ObjectID, manager string) bool { return m[manager].Has(managersKey(id)) }

// ManagersOf returns the field managers in an AppliedManifestWork.
func ManagersOf(record *workv1.AppliedManifestWork) Managers {
	var managers Managers
	_ = json.Unmarshal([]byte(record.Annotations[managersAnnotation]), &managers) // without it, there are none
	if managers == nil {
		managers = Managers{} // an administrator can set null
	}
	return managers
}

// RecordManagers stores the field managers of items in an AppliedManifestWork, including those of earlier versions.
// While an item is not resolved, it forgets none.
func RecordManagers(record *workv1.AppliedManifestWork, items []*Item) error {
	managers, current, unresolved := ManagersOf(record), sets.New[string](), false
	for _, it := range items {
		key := managersKey(it.ID())
		current.Insert(key)
		unresolved = unresolved || it.Object == nil // its key is not known
		if it.Object != nil && it.Config.Strategy.Type == workv1.UpdateStrategyTypeServerSideApply {
			manager := it.Config.Applier()
			if managers[manager] == nil {
				managers[manager] = sets.New[string]()
			}
			managers[manager].Insert(key)
		}
	}
	maps.DeleteFunc(managers, func(manager string, keys sets.Set[string]) bool {
		if !unresolved {
			managers[manager] = keys.Intersection(current)
		}
		return len(managers[manager]) == 0
	})
	encoded, err := json.Marshal(managers)
	delete(record.Annotations, managersAnnotation)
	if err == nil && len(managers) > 0 && len(encoded) <= maxManagers {
		metav1.SetMetaDataAnnotation(&record.ObjectMeta, managersAnnotation, string(encoded))
	}
	return err
}

// Author is the writer of an entry of managed fields.
type Author int

const (
	// Other is any other writer than the ManifestWork.
	Other Author = iota
	// Current is the ManifestWork, with the field manager and the operation of its update strategy.
	Current
	// Former is the ManifestWork, with another field manager or another operation.
	Former
)

// TakeOver merges the entries of managed fields that the ManifestWork wrote, of which there must be one, to an
// entry with the given manager and operation. authors are the authors of the entries. Fields of entries in
// another API version than that of the current entry get no manager.
func TakeOver(object *unstructured.Unstructured, authors []Author, manager string, operation metav1.ManagedFieldsOperationType) error {
	base := slices.Index(authors, Current)
	if base < 0 {
		base = slices.Index(authors, Former)
	}
	entries, fields := object.GetManagedFields(), fieldpath.NewSet()
	target := &entries[base]
	var merged []metav1.ManagedFieldsEntry
	for i, entry := range entries {
		if authors[i] != Other && entry.APIVersion == target.APIVersion {
			written, err := fieldsOf(entry)
			if err != nil {
				return err
			}
			fields = fields.Union(written)
		}
		if authors[i] == Other {
			merged = append(merged, entry)
		}
	}
	encoded, err := fields.ToJSON()
	if err != nil {
		return err
	}
	target.Manager, target.Operation, target.FieldsV1 = manager, operation, metav1.NewFieldsV1(string(encoded))
	object.SetManagedFields(append(merged, *target))
	return nil
}

func fieldsOf(entry metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	fields := fieldpath.NewSet()
	if entry.FieldsV1 == nil {
		return fields, nil
	}
	if err := fields.FromJSON(entry.FieldsV1.GetRawReader()); err != nil {
		return nil, fmt.Errorf("managed fields of %s: %w", entry.Manager, err)
	}
	return fields, nil
}

// DropOwned removes from result the fields of live that the manifest does not set and only the ManifestWork
// wrote, as a former author or, if stale is true, as any. It keeps owner references. authors are the authors of the
// managed fields of live.
func DropOwned(result, live, manifest *unstructured.Unstructured, authors []Author, stale bool) error {
	mine, others := fieldpath.NewSet(), fieldpath.NewSet()
	for i, entry := range live.GetManagedFields() {
		fields, err := fieldsOf(entry)
		switch {
		case err != nil:
			return err
		case authors[i] == Other:
			others = others.Union(fields)
		case (stale || authors[i] == Former) && entry.APIVersion == live.GetAPIVersion():
			mine = mine.Union(fields)
		}
	}
	owners := result.GetOwnerReferences()
	drop(result.Object, manifest.Object, mine, others)
	result.SetOwnerReferences(owners)
	if value, adopted := live.GetAnnotations()[AdoptedAnnotation]; adopted {
		result.SetAnnotations(labels.Merge(result.GetAnnotations(), map[string]string{AdoptedAnnotation: value}))
	}
	return nil
}

// drop returns content without the fields of mine that want does not set and that are not in others. If want
// sets a list, content has the same items.
func drop(content, want any, mine, others *fieldpath.Set) any {
	if mine.Empty() {
		return content
	}
	switch content := content.(type) {
	case map[string]any:
		wanted, _ := want.(map[string]any)
		for name, child := range content {
			below, set := wanted[name]
			if rest, stays := dropBelow(child, below, set, mine, others, fieldpath.FieldNameElement(name)); stays {
				content[name] = rest
			} else {
				delete(content, name)
			}
		}
	case []any:
		wanted, set := want.([]any)
		if !set {
			wanted = make([]any, len(content))
		} else if len(wanted) != len(content) {
			return content
		}
		like, left := itemElement(mine), make([]any, 0, len(content))
		for i, item := range content {
			if rest, stays := dropBelow(item, wanted[i], set, mine, others, elementOf(item, i, like)); stays {
				left = append(left, rest)
			}
		}
		return left
	}
	return content
}

// dropBelow is like drop, for a child of the content of mine and others. It reports whether the child stays. set is
// true if the manifest sets the child to want.
func dropBelow(child, want any, set bool, mine, others *fieldpath.Set, element fieldpath.PathElement) (any, bool) {
	own, below := childrenOf(mine, element), childrenOf(others, element)
	stays := set || others.Members.Has(element) || !below.Empty()
	// Admission may have set fields in a map without becoming their manager. A list item could lack its key without the
	// fields of the manifest.
	whole := own.Empty() || element.FieldName == nil
	if mine.Members.Has(element) && !stays && whole {
		return nil, false
	}
	rest := drop(child, want, own, below)
	return rest, stays || own.Empty() || !isEmpty(rest)
}

func childrenOf(set *fieldpath.Set, element fieldpath.PathElement) *fieldpath.Set {
	if below, ok := set.Children.Get(element); ok {
		return below
	}
	return fieldpath.NewSet()
}

func isEmpty(content any) bool {
	switch content := content.(type) {
	case map[string]any:
		return len(content) == 0
	case []any:
		return len(content) == 0
	}
	return false
}

// itemElement returns one of the path elements of a set.
func itemElement(set *fieldpath.Set) (found fieldpath.PathElement) {
	set.Members.Iterate(func(element fieldpath.PathElement) { found = element })
	set.Children.Iterate(func(element fieldpath.PathElement) { found = element })
	return found
}

// elementOf returns the path element of a list item, in the form of another item of that list.
func elementOf(item any, index int, like fieldpath.PathElement) fieldpath.PathElement {
	switch {
	case like.Key != nil:
		fields, _ := item.(map[string]any)
		var key value.FieldList
		for _, field := range *like.Key {
			key = append(key, value.Field{Name: field.Name, Value: value.NewValueInterface(fields[field.Name])})
		}
		return fieldpath.PathElement{Key: &key}
	case like.Value != nil:
		own := value.NewValueInterface(item)
		return fieldpath.PathElement{Value: &own}
	}
	return fieldpath.PathElement{Index: &index}
}
