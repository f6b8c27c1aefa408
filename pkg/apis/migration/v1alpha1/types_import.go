package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// User is the user as which a migration writes. While it holds the Lease of the controllers of the server, these do
// not run, and the server imports objects.
const User = "open-cluster-management:migration"

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Import stores an object of another hub or of a CustomResourceDefinition in the server, with its UID and its
// status, or discards the stored objects of a kind. It is not stored itself: the response to its creation contains
// the stored object in status.
//
// The server refuses it for a group and version that the hub forwards to the server, because it replaces objects
// without the checks of a request, unless spec.adopt is set. Users with permission to create imports have all
// permissions that the imported objects grant.
type Import struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec specifies what is imported or discarded.
	Spec ImportSpec `json:"spec"`

	// status is the result. It is read-only.
	// +optional
	Status ImportStatus `json:"status,omitempty"`
}

// ImportSpec specifies what is imported. Exactly one of object, discard and epoch is required.
type ImportSpec struct {
	// object is the object, in a version that the server stores or serves. The server keeps its UID, creation
	// time, deletion time, generation, finalizers, owners, managed fields and status. It replaces a stored object
	// of the same name. A spec that the server would refuse in a request is refused here too.
	// +optional
	Object *runtime.RawExtension `json:"object,omitempty"`

	// discard is a kind whose stored objects are all removed, regardless of finalizers.
	// +optional
	Discard *metav1.GroupVersionKind `json:"discard,omitempty"`

	// epoch raises the epoch of a ManagedCluster. Nothing else can change it, and it never falls: agents obey the hub
	// with the highest epoch.
	// +optional
	Epoch *ImportEpoch `json:"epoch,omitempty"`

	// adopt specifies that the object comes from another hub, which this hub replaces. The server then accepts the
	// object even if the hub forwards requests to the server, and also accepts ManagedClusterRegistrations. It keeps
	// fields that only a server writes, such as the user who accepted a cluster. It rejects an object if another one
	// with a different UID exists. It can only be set together with object.
	// +optional
	Adopt bool `json:"adopt,omitempty"`
}

// ImportEpoch is the epoch of a hub that has adopted a cluster.
type ImportEpoch struct {
	// managedCluster is the name of the ManagedCluster.
	ManagedCluster string `json:"managedCluster"`
	// epoch is the number of the epoch and the ID of the adoption, such as 1/4f1c9c1e. It becomes the annotation
	// open-cluster-management.io/hub-epoch.
	Epoch string `json:"epoch"`
}

// ImportStatus is the result of an import.
type ImportStatus struct {
	// object is the object as it is stored.
	// +optional
	Object *runtime.RawExtension `json:"object,omitempty"`

	// discarded is the number of removed objects.
	// +optional
	Discarded int64 `json:"discarded,omitempty"`
}
