package definition

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Object is a pointer to a T that is an API object.
type Object[T any] interface {
	*T
	runtime.Object
	metav1.Object
}

// Question serves a cluster-scoped resource that can only be created. The response contains the result.
type Question[T any, P Object[T]] struct {
	// Singular is the singular name of the resource.
	Singular string
	// Answer returns the response. It may change the question.
	Answer func(context.Context, P) (runtime.Object, error)
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
func (r *Question[T, P]) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	question, ok := obj.(P)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected a %T, got a %T", P(nil), obj))
	}
	// Fields of objects that are not stored have no managers.
	question.SetManagedFields(nil)
	return r.Answer(ctx, question)
}
