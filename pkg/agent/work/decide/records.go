package decide

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// AdoptedAnnotation marks an object that existed before any ManifestWork applied it. It
// stays on the cluster when the last ManifestWork releases it.
const AdoptedAnnotation = "work.open-cluster-management.io/adopted"

const recordKind = "AppliedManifestWork"

var recordAPIVersion = workv1.SchemeGroupVersion.String()

// OwnerRef returns the owner reference of applied objects to an AppliedManifestWork.
func OwnerRef(record *workv1.AppliedManifestWork) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: recordAPIVersion, Kind: recordKind, Name: record.Name, UID: record.UID}
}

// RecordOwners returns the references of an object to AppliedManifestWorks.
func RecordOwners(object metav1.Object) []metav1.OwnerReference {
	return slices.DeleteFunc(slices.Clone(object.GetOwnerReferences()), func(owner metav1.OwnerReference) bool {
		return owner.APIVersion != recordAPIVersion || owner.Kind != recordKind
	})
}

func sameUID(owner metav1.OwnerReference) func(metav1.OwnerReference) bool {
	return func(other metav1.OwnerReference) bool { return other.UID == owner.UID }
}

// RemoveOwner removes the owner reference with the same UID. It reports whether the object has
// changed.
func RemoveOwner(object metav1.Object, owner metav1.OwnerReference) bool {
	if !HasOwner(object, owner) {
		return false
	}
	object.SetOwnerReferences(slices.DeleteFunc(slices.Clone(object.GetOwnerReferences()), sameUID(owner)))
	return true
}

// HasOwner reports whether an object has an owner reference with the same UID.
func HasOwner(object metav1.Object, owner metav1.OwnerReference) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), sameUID(owner))
}

// An entry is the description of an object in an AppliedManifestWork. It is written without
// a UID before the object is applied for the first time.

// EntryID returns the ID of the object of an entry.
func EntryID(entry workv1.AppliedManifestResourceMeta) ObjectID {
	return ObjectID{Group: entry.Group, Resource: entry.Resource, Namespace: entry.Namespace, Name: entry.Name}
}

// EntryOf returns the entry of an object in an AppliedManifestWork, or nil if there is none.
func EntryOf(record *workv1.AppliedManifestWork, id ObjectID) *workv1.AppliedManifestResourceMeta {
	entries := record.Status.AppliedResources
	at := slices.IndexFunc(entries, func(entry workv1.AppliedManifestResourceMeta) bool { return EntryID(entry) == id })
	if at < 0 {
		return nil
	}
	return &entries[at]
}

func (i *Item) entry() workv1.AppliedManifestResourceMeta {
	return workv1.AppliedManifestResourceMeta{Group: i.GVR.Group, Resource: i.GVR.Resource, Namespace: i.Namespace, Name: i.Name, Version: i.GVR.Version}
}

// Intents returns the entries to write before items are applied: the recorded entries, and one
// entry without a UID for each object that has none.
func Intents(recorded []workv1.AppliedManifestResourceMeta, ordered []*Item) []workv1.AppliedManifestResourceMeta {
	entries := slices.Clone(recorded)
	known := sets.New[ObjectID]()
	for _, entry := range recorded {
		known.Insert(EntryID(entry))
	}
	for _, it := range ordered {
		if it.Tracked() && !known.Has(it.ID()) {
			entries = append(entries, it.entry())
		}
	}
	return entries
}

// Outcomes returns the entries after items were applied. current are the entries of the items, with
// the known UIDs. left are the entries of objects that are not among the items.
func Outcomes(recorded []workv1.AppliedManifestResourceMeta, ordered []*Item, uids map[ObjectID]types.UID) (current, left []workv1.AppliedManifestResourceMeta) {
	before := map[ObjectID]workv1.AppliedManifestResourceMeta{}
	for _, entry := range recorded {
		before[EntryID(entry)] = entry
	}
	for _, it := range ordered {
		if !it.Tracked() {
			continue
		}
		entry := it.entry()
		entry.UID = before[it.ID()].UID
		delete(before, it.ID())
		if uid, ok := uids[it.ID()]; ok {
			entry.UID = string(uid)
		}
		current = append(current, entry)
	}
	for _, entry := range recorded {
		if _, ok := before[EntryID(entry)]; ok {
			left = append(left, entry)
		}
	}
	return current, left
}

// Without returns the entries of left whose objects are not in current. Two groups may serve one
// object, which must not be removed under the previous group.
func Without(left, current []workv1.AppliedManifestResourceMeta) []workv1.AppliedManifestResourceMeta {
	uids := sets.New[string]()
	for _, entry := range current {
		uids.Insert(entry.UID)
	}
	uids.Delete("")
	return slices.DeleteFunc(slices.Clone(left), func(entry workv1.AppliedManifestResourceMeta) bool { return uids.Has(entry.UID) })
}

// MayBeAbout reports whether an entry may describe the object of an unresolved manifest.
func MayBeAbout(unresolved []*Item, entry workv1.AppliedManifestResourceMeta) bool {
	return slices.ContainsFunc(unresolved, func(it *Item) bool {
		return it.Name == "" || it.GVK.Group == entry.Group && it.Name == entry.Name && (it.Namespace == entry.Namespace || entry.Namespace == "")
	})
}
