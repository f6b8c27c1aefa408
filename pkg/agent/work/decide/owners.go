package decide

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// SetOwner adds an owner reference, or updates the reference with the same UID. It reports whether
// the object has changed.
func SetOwner(object metav1.Object, owner metav1.OwnerReference) bool {
	owners := object.GetOwnerReferences()
	at := slices.IndexFunc(owners, sameUID(owner))
	switch {
	case at < 0:
		owners = append(owners, owner)
	case equality.Semantic.DeepEqual(owners[at], owner):
		return false
	default:
		owners[at] = owner
	}
	object.SetOwnerReferences(owners)
	return true
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
