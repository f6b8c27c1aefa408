package search

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	engine "open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/pkg/search/terms"
)

// NewCompletions serves searchcompletions.
func NewCompletions(options Options) rest.Storage {
	return &questionREST{
		singular: "searchcompletion", newFunc: func() runtime.Object { return &searchv1alpha1.SearchCompletion{} },
		answer: func(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
			question, ok := obj.(*searchv1alpha1.SearchCompletion)
			if !ok {
				return nil, apierrors.NewBadRequest(fmt.Sprintf("not a SearchCompletion: %T", obj))
			}
			path := field.NewPath("spec")
			q, errs := terms.Query(&question.Spec.SearchTerms, path)
			limit, bad := terms.Limit(question.Spec.Limit, path.Child("limit"))
			errs = append(errs, bad...)
			errs = append(errs, terms.Property(question.Spec.Property, path.Child("property"))...)
			if len(errs) > 0 {
				return nil, apierrors.NewInvalid(searchv1alpha1.SchemeGroupVersion.WithKind("SearchCompletion").GroupKind(), question.Name, errs)
			}
			scope, err := terms.Scope(ctx, options.Scopes)
			if err != nil {
				return nil, err
			}
			found, err := options.Engine.Complete(ctx, scope, &engine.CompletionRequest{
				Property: question.Spec.Property, Prefix: question.Spec.Prefix, Query: q, Now: time.Now(), Limit: limit,
			})
			if err != nil {
				return nil, terms.Error(ctx, err)
			}
			question.Status = searchv1alpha1.SearchCompletionStatus{
				More: found.More, Type: searchv1alpha1.PropertyString, Min: found.Min, Max: found.Max,
				Values: make([]searchv1alpha1.PropertyValue, 0, len(found.Values)),
			}
			switch {
			case found.Numbers:
				question.Status.Type = searchv1alpha1.PropertyNumber
			case found.Times:
				question.Status.Type = searchv1alpha1.PropertyTime
			}
			for i := range found.Values {
				question.Status.Values = append(question.Status.Values, searchv1alpha1.PropertyValue{
					Value: found.Values[i].Value, Count: int64(found.Values[i].Count),
				})
			}
			return question, nil
		},
	}
}

// NewSchemas serves searchschemas.
func NewSchemas(options Options) rest.Storage {
	return &questionREST{
		singular: "searchschema", newFunc: func() runtime.Object { return &searchv1alpha1.SearchSchema{} },
		answer: func(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
			question, ok := obj.(*searchv1alpha1.SearchSchema)
			if !ok {
				return nil, apierrors.NewBadRequest(fmt.Sprintf("not a SearchSchema: %T", obj))
			}
			q, errs := terms.Query(&question.Spec, field.NewPath("spec"))
			if len(errs) > 0 {
				return nil, apierrors.NewInvalid(searchv1alpha1.SchemeGroupVersion.WithKind("SearchSchema").GroupKind(), question.Name, errs)
			}
			scope, err := terms.Scope(ctx, options.Scopes)
			if err != nil {
				return nil, err
			}
			found, err := options.Engine.Schema(ctx, scope, &q, time.Now())
			if err != nil {
				return nil, terms.Error(ctx, err)
			}
			question.Status = searchv1alpha1.SearchSchemaStatus{Properties: make([]searchv1alpha1.PropertyDescription, 0, len(found))}
			for i := range found {
				question.Status.Properties = append(question.Status.Properties, searchv1alpha1.PropertyDescription{
					Name: found[i].Name, Type: propertyType(&found[i]),
				})
			}
			return question, nil
		},
	}
}

func propertyType(p *engine.PropertySchema) searchv1alpha1.PropertyType {
	switch {
	case p.Time:
		return searchv1alpha1.PropertyTime
	case p.Type == query.Number:
		return searchv1alpha1.PropertyNumber
	case p.Type == query.Bool:
		return searchv1alpha1.PropertyBool
	case p.Type == query.Map:
		return searchv1alpha1.PropertyMap
	case p.Type == query.List:
		return searchv1alpha1.PropertyList
	}
	return searchv1alpha1.PropertyString
}
