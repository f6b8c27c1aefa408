package search

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	engine "open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/pkg/search/serving"
)

// NewCompletions returns the storage of searchcompletions.
func NewCompletions(options Options) rest.Storage {
	return &definition.Question[*searchv1alpha1.SearchCompletion]{
		Base: definition.Base{Object: &searchv1alpha1.SearchCompletion{}, Singular: "searchcompletion"},
		Answer: func(ctx context.Context, question *searchv1alpha1.SearchCompletion) (runtime.Object, error) {
			ctx = bounded(ctx)
			path := field.NewPath("spec")
			q, errs := serving.Query(&question.Spec.SearchTerms, path)
			limit, limitErrs := serving.Limit(question.Spec.Limit, path.Child("limit"))
			errs = append(errs, limitErrs...)
			errs = append(errs, serving.Property(question.Spec.Property, path.Child("property"))...)
			errs = append(errs, serving.Prefix(question.Spec.Prefix, path.Child("prefix"))...)
			if len(errs) > 0 {
				return nil, invalid("SearchCompletion", question.Name, errs)
			}
			scope, err := serving.Scope(ctx, options.Scopes)
			if err != nil {
				return nil, err
			}
			found, err := options.Engine.Complete(ctx, scope, &engine.CompletionRequest{
				Property: question.Spec.Property, Prefix: question.Spec.Prefix, Query: q, Now: time.Now(), Limit: limit,
			})
			if err != nil {
				return nil, serving.Error(ctx, err)
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
			for _, value := range found.Values {
				question.Status.Values = append(question.Status.Values, searchv1alpha1.PropertyValue{Value: value.Value, Count: int64(value.Count)})
			}
			return question, nil
		},
	}
}

// NewSchemas returns the storage of searchschemas.
func NewSchemas(options Options) rest.Storage {
	return &definition.Question[*searchv1alpha1.SearchSchema]{
		Base: definition.Base{Object: &searchv1alpha1.SearchSchema{}, Singular: "searchschema"},
		Answer: func(ctx context.Context, question *searchv1alpha1.SearchSchema) (runtime.Object, error) {
			ctx = bounded(ctx)
			q, errs := serving.Query(&question.Spec, field.NewPath("spec"))
			if len(errs) > 0 {
				return nil, invalid("SearchSchema", question.Name, errs)
			}
			scope, err := serving.Scope(ctx, options.Scopes)
			if err != nil {
				return nil, err
			}
			found, err := options.Engine.Schema(ctx, scope, &q, time.Now())
			if err != nil {
				return nil, serving.Error(ctx, err)
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
