package work

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// Executors decides with whose permissions works act. Every pass over a work
// asks before it reads or writes any object of the work, so an implementation
// sees all of them first and can refuse the work as a whole. Removal of objects
// is not asked for: it is decided when they are applied.
type Executors interface {
	// Admit returns the client with which the objects of a work are read and
	// written. A *Refusal says that the work must not act: nothing of it is read
	// or written, and what it applied before stays. Any other error is retried.
	Admit(ctx context.Context, request AdmitRequest) (dynamic.Interface, error)
	// Run learns what changes until ctx ends, and returns when all that it started
	// has ended. Meanwhile it calls changed with an executor whose permissions may
	// have changed, from any goroutine; changed does not block.
	Run(ctx context.Context, changed func(executor types.NamespacedName))
	// Forget drops what is known about an executor that no work names any more.
	Forget(executor types.NamespacedName)
}

// AdmitRequest is what a work is about to do.
type AdmitRequest struct {
	Work *workv1.ManifestWork
	// Targets are the objects of all manifests that could be resolved.
	Targets []Target
	// Acting is whether any object is about to be read or written. A pass that
	// finds all of them as it left them does neither.
	Acting bool
}

// Target is one object that a work is about to act on.
type Target struct {
	// Ordinal is the index of the manifest in the work.
	Ordinal int
	// Resource, Namespace and Name say which object it is.
	Resource        schema.GroupVersionResource
	Namespace, Name string
	// Object is the manifest. It must not be changed.
	Object *unstructured.Unstructured
	// Strategy says which requests applying the object takes.
	Strategy workv1.UpdateStrategyType
	// Removed is whether the object is removed with the work.
	Removed bool
}

// Refusal is the error of a work that must not act.
type Refusal struct {
	// Message says why the work as a whole must not act.
	Message string
	// Manifests says for some manifests, by their ordinal, what they lack. For the
	// others Message is reported.
	Manifests map[int]string
}

// Error returns the message.
func (r *Refusal) Error() string { return r.Message }

// ExecutorOf returns the ServiceAccount of the managed cluster that a work acts
// as. It is false for a work that acts as the agent itself.
func ExecutorOf(work *workv1.ManifestWork) (types.NamespacedName, bool) {
	executor := work.Spec.Executor
	if executor == nil || executor.Subject.ServiceAccount == nil {
		return types.NamespacedName{}, executor != nil
	}
	return types.NamespacedName{Namespace: executor.Subject.ServiceAccount.Namespace, Name: executor.Subject.ServiceAccount.Name}, true
}
