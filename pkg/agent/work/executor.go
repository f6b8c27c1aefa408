package work

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// Executors decides with which permissions ManifestWorks act. The permission to remove objects is
// decided when the objects are applied.
type Executors interface {
	// Admit returns the client that reads and writes the objects of a ManifestWork. If the error is
	// a *Refusal, no object of the ManifestWork is read or written, and the applied objects stay.
	// Other errors are retried.
	Admit(ctx context.Context, request AdmitRequest) (dynamic.Interface, error)
}

// AdmitRequest describes the objects of a pass.
type AdmitRequest struct {
	Work *workv1.ManifestWork
	// Targets are the objects of all manifests that could be resolved.
	Targets []Target
	// Fresh is true if earlier answers about permissions must not be used, because the cluster has
	// refused a request.
	Fresh bool
}

// Target is one object of a ManifestWork.
type Target struct {
	// Ordinal is the index of the manifest in the ManifestWork.
	Ordinal         int
	Resource        schema.GroupVersionResource
	Namespace, Name string
	// Object is the manifest. It must not be changed.
	Object *unstructured.Unstructured
	// Strategy determines which requests apply the object.
	Strategy workv1.UpdateStrategyType
	// Removed is true if the object is removed with the ManifestWork.
	Removed bool
}

// Refusal is the error of a ManifestWork that is not allowed to act.
type Refusal struct {
	// Message is the reason for the ManifestWork as a whole.
	Message string
	// Manifests are the reasons for single manifests, by ordinal. Message applies to the other
	// manifests.
	Manifests map[int]string
}

// Error implements error.
func (r *Refusal) Error() string { return r.Message }

// ExecutorOf returns the ServiceAccount of the managed cluster as which a ManifestWork acts, or
// false if the ManifestWork acts as the agent.
func ExecutorOf(work *workv1.ManifestWork) (types.NamespacedName, bool) {
	executor := work.Spec.Executor
	if executor == nil || executor.Subject.ServiceAccount == nil {
		return types.NamespacedName{}, executor != nil
	}
	return types.NamespacedName{Namespace: executor.Subject.ServiceAccount.Namespace, Name: executor.Subject.ServiceAccount.Name}, true
}
