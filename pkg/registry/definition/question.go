package definition

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Question serves a cluster-scoped resource that can only be created. The response contains the result.
type Question[T Object] struct {
	Base
	// Answer returns the response. It may change the question.
	Answer func(context.Context, T) (runtime.Object, error)
	// Write replaces Answer for a question that changes something, for which the options matter.
	Write func(context.Context, T, *metav1.CreateOptions) (runtime.Object, error)
}

var _ rest.Creater = &Question[*metav1.PartialObjectMetadata]{}

// Create implements rest.Creater.
func (r *Question[T]) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	if err := validate(ctx, obj.DeepCopyObject()); err != nil {
		return nil, err
	}
	question := obj.(T)
	// Fields of objects that are not stored have no managers.
	question.SetManagedFields(nil)
	if r.Write != nil {
		return r.Write(ctx, question, options)
	}
	return r.Answer(ctx, question)
}
