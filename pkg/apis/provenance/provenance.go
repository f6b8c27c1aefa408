// Package provenance lists what the product reads as a fact in objects that others may write too, and who may write it.
//
// A test compares the table with the keys and the conditions in the code, so it is complete. Stores of the server enforce
// the rows of the Server; another test attempts each of these writes.
package provenance

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Writer is who may write a value, and so whose word it is.
type Writer string

const (
	// Server is the server alone. Stores of the server ignore the value in requests of all others, administrators included:
	// in creates, updates, patches, applies and writes of the status. Only an import writes it, by an administrator with
	// permission to create imports.
	Server Writer = "Server"
	// Import is an import alone. The server itself never writes the value.
	Import Writer = "Import"
	// HubComponents are the server and administrators of the hub, by the RBAC of the hub: nobody else may write such objects.
	HubComponents Writer = "HubComponents"
	// Agent is the agent of the cluster. The hub allows it only objects of its cluster, and the value is believed only about
	// that cluster.
	Agent Writer = "Agent"
	// Cluster are the agent and the administrators of a managed cluster, on objects of the managed cluster.
	Cluster Writer = "Cluster"
	// User is everyone with permission to write the object. The value is a request like a field of the spec: what it causes
	// is allowed to that user, or checked.
	User Writer = "User"
)

// Part is the part of an object that contains a value.
type Part string

// Parts of an object.
const (
	Label      Part = "Label"
	Annotation Part = "Annotation"
	Finalizer  Part = "Finalizer"
	Taint      Part = "Taint"
	Claim      Part = "Claim"
	Condition  Part = "Condition"
	// Status is a field of the status.
	Status Part = "Status"
)

// Fact is a value that the product reads as a fact.
type Fact struct {
	// Kind is the kind of the object.
	Kind schema.GroupKind
	Part Part
	// Key is the key of a label, annotation, finalizer, taint or claim, the type of a condition, or the name of a field. A
	// key that ends in "-" or "/" is a prefix.
	Key    string
	Writer Writer
	// Read says what the value decides and, for a writer that is not the Server, why believing it is safe.
	Read string
	// OnCRDs says what protects a value of the Server, or why it is not believed, if the hub serves the kind by a
	// CustomResourceDefinition, whose objects everyone with permission to update them may change.
	OnCRDs string
}

// ServerKeys returns the labels and annotations of a kind that stores ignore in requests.
func ServerKeys(kind schema.GroupKind) (labels, annotations []string) {
	for _, fact := range Facts {
		if fact.Kind != kind || fact.Writer != Server && fact.Writer != Import {
			continue
		}
		switch fact.Part {
		case Label:
			labels = append(labels, fact.Key)
		case Annotation:
			annotations = append(annotations, fact.Key)
		}
	}
	return labels, annotations
}

// ServerConditions returns the conditions of a kind that stores keep in writes of the status.
func ServerConditions(kind schema.GroupKind) []string {
	var conditions []string
	for _, fact := range Facts {
		if fact.Kind == kind && fact.Part == Condition && fact.Writer == Server {
			conditions = append(conditions, fact.Key)
		}
	}
	return slices.Clip(conditions)
}
