package decide

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
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
	hash, _ := Hash(record) // Hash of a string does not fail
	return workv1.DefaultFieldManager + "-" + hash[:10]
}

// managersAnnotation contains the Managers of an AppliedManifestWork, in JSON.
const managersAnnotation = "work.open-cluster-management.io/field-managers"

// maxManagers bounds the annotation, because all annotations of an object may take 256 KiB together. 1,500
// objects under one field manager take a third of it.
const maxManagers = 64 << 10

// Managers are the field managers under which a ManifestWork has applied objects server-side, each with the
// keys of the objects. They show which fields belong to the ManifestWork if another one applies an object, too.
type Managers map[string]sets.Set[string]

func managersKey(id ObjectID) string {
	hash, _ := Hash(id.String()) // Hash of a string does not fail
	return hash[:8]
}

// Wrote reports whether the ManifestWork has applied an object under a field manager.
func (m Managers) Wrote(id ObjectID, manager string) bool { return m[manager].Has(managersKey(id)) }

// ManagersOf returns the field managers in an AppliedManifestWork.
func ManagersOf(record *workv1.AppliedManifestWork) Managers {
	managers := Managers{}
	_ = json.Unmarshal([]byte(record.Annotations[managersAnnotation]), &managers) // without it, there are none
	return managers
}

// RecordManagers stores the field managers of items in an AppliedManifestWork, including those of earlier versions.
func RecordManagers(record *workv1.AppliedManifestWork, items []*Item) error {
	managers := Managers{}
	add := func(manager, key string) {
		if managers[manager] == nil {
			managers[manager] = sets.New[string]()
		}
		managers[manager].Insert(key)
	}
	before := ManagersOf(record)
	for _, it := range items {
		key := managersKey(it.ID())
		for manager, keys := range before {
			if keys.Has(key) {
				add(manager, key)
			}
		}
		if it.Object != nil && it.Config.Strategy.Type == workv1.UpdateStrategyTypeServerSideApply {
			add(it.Config.Applier(), key)
		}
	}
	encoded, err := json.Marshal(managers)
	delete(record.Annotations, managersAnnotation)
	if err == nil && len(managers) > 0 && len(encoded) <= maxManagers {
		metav1.SetMetaDataAnnotation(&record.ObjectMeta, managersAnnotation, string(encoded))
	}
	return err
}

// OwnEntry reports whether a ManifestWork wrote the fields of an entry of managed fields.
type OwnEntry func(metav1.ManagedFieldsEntry) bool

// TakeOver makes one entry of managed fields, with the given manager and operation, of all entries
// that are own. Fields of entries in other API versions than the latest get no manager.
func TakeOver(object *unstructured.Unstructured, own OwnEntry, manager string, operation metav1.ManagedFieldsOperationType) error {
	target := manager
	if operation == metav1.ManagedFieldsOperationUpdate {
		target = "(taken over)"
	}
	entries := object.GetManagedFields()
	var former []string
	for i := range entries {
		entry := &entries[i]
		if !own(*entry) || entry.Manager == target && entry.Operation == metav1.ManagedFieldsOperationApply {
			continue
		}
		// The upgrade merges only managers with different names.
		entry.Manager, entry.Operation = fmt.Sprintf("(former %d)", i), metav1.ManagedFieldsOperationUpdate
		former = append(former, entry.Manager)
	}
	object.SetManagedFields(entries)
	for _, name := range former {
		if err := csaupgrade.UpgradeManagedFields(object, sets.New(name), target); err != nil {
			return err
		}
	}
	entries = object.GetManagedFields()
	for i := range entries {
		if entries[i].Manager == target {
			entries[i].Manager, entries[i].Operation = manager, operation
		}
	}
	object.SetManagedFields(entries)
	return nil
}

// DropOwned removes from result the fields of live that only stale entries own and that manifest does
// not set, except owner references. own reports the other entries of the ManifestWork.
func DropOwned(result, live, manifest *unstructured.Unstructured, own, stale OwnEntry) error {
	mine, others := fieldpath.NewSet(), fieldpath.NewSet()
	for _, entry := range live.GetManagedFields() {
		if entry.FieldsV1 == nil {
			continue
		}
		fields := &fieldpath.Set{}
		if err := fields.FromJSON(entry.FieldsV1.GetRawReader()); err != nil {
			return fmt.Errorf("managed fields of %s: %w", entry.Manager, err)
		}
		switch {
		case !own(entry):
			others = others.Union(fields)
		case stale(entry) && entry.APIVersion == live.GetAPIVersion():
			mine = mine.Union(fields)
		}
	}
	owners := result.GetOwnerReferences()
	drop(result.Object, manifest.Object, mine, others)
	result.SetOwnerReferences(owners)
	if value, adopted := live.GetAnnotations()[AdoptedAnnotation]; adopted {
		annotations := result.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[AdoptedAnnotation] = value
		result.SetAnnotations(annotations)
	}
	return nil
}

// drop returns value without the fields of mine that want does not set and that are not in others. If
// want sets a list, value has the same items.
func drop(content, want any, mine, others *fieldpath.Set) any {
	if mine.Empty() {
		return content
	}
	// keeps reports whether a child stays, and returns what remains of it.
	keeps := func(child any, element fieldpath.PathElement) (any, bool) {
		below, hasBelow := mine.Children.Get(element)
		shared := others.Members.Has(element) || !childrenOf(others, element).Empty()
		switch {
		case mine.Members.Has(element) && !shared:
			return nil, false
		case !hasBelow:
			return child, true
		}
		rest := drop(child, nil, below, childrenOf(others, element))
		return rest, shared || !isEmpty(rest)
	}
	switch content := content.(type) {
	case map[string]any:
		wanted, _ := want.(map[string]any)
		for name, child := range content {
			element := fieldpath.FieldNameElement(name)
			if below, set := wanted[name]; set {
				content[name] = drop(child, below, childrenOf(mine, element), childrenOf(others, element))
			} else if rest, stays := keeps(child, element); stays {
				content[name] = rest
			} else {
				delete(content, name)
			}
		}
	case []any:
		wanted, set := want.([]any)
		if set && len(wanted) != len(content) {
			return content
		}
		like := itemElement(mine)
		var rest []any
		for i, item := range content {
			element := elementOf(item, i, like)
			if set {
				content[i] = drop(item, wanted[i], childrenOf(mine, element), childrenOf(others, element))
			} else if left, stays := keeps(item, element); stays {
				rest = append(rest, left)
			}
		}
		if !set {
			return rest
		}
	}
	return content
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
