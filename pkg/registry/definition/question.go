package definition

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Pointer is a pointer to a T that is an API object.
type Pointer[T any] interface {
	*T
	Object
}

// Question serves a cluster-scoped resource that can only be created. The response contains the result.
type Question[T any, P Pointer[T]] struct {
	// Singular is the singular name of the resource.
	Singular string
	// Answer returns the response. It may change the question.
	Answer func(context.Context, P) (runtime.Object, error)
	// Write replaces Answer for a question that changes something, for which the options matter.
	Write func(context.Context, P, *metav1.CreateOptions) (runtime.Object, error)
}

var (
	_ rest.Creater              = &Question[metav1.PartialObjectMetadata, *metav1.PartialObjectMetadata]{}
	_ rest.Scoper               = &Question[metav1.PartialObjectMetadata, *metav1.PartialObjectMetadata]{}
	_ rest.SingularNameProvider = &Question[metav1.PartialObjectMetadata, *metav1.PartialObjectMetadata]{}
)

// New implements rest.Storage.
func (r *Question[T, P]) New() runtime.Object { return P(new(T)) }

// Destroy implements rest.Storage.
func (r *Question[T, P]) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (r *Question[T, P]) NamespaceScoped() bool { return false }

// GetSingularName implements rest.SingularNameProvider.
func (r *Question[T, P]) GetSingularName() string { return r.Singular }

// Create implements rest.Creater.
func (r *Question[T, P]) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	question := obj.(P)
	// Fields of objects that are not stored have no managers.
	question.SetManagedFields(nil)
	if r.Write != nil {
		return r.Write(ctx, question, options)
	}
	return r.Answer(ctx, question)
}
