// Package search serves searches, searchcompletions and searchschemas: virtual resources that return information
// about the fleet when they are created, from the resources that the caller may find.
package search

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	engine "open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/ingest"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/pkg/search/serving"
)

const (
	// maxSearches bounds the searches of one request.
	maxSearches = 100
	// maxStaleClusters bounds the clusters that the warnings of a search name.
	maxStaleClusters = 20
)

// Options are the dependencies of searches.
type Options struct {
	Engine engine.Engine
	Scopes engine.Scopes
	// States returns the states of the clusters' reports.
	States func(context.Context) ([]ingest.State, error)
}

// bounded returns the context of a request whose searches share a budget.
func bounded(ctx context.Context) context.Context { return engine.AllowStale(engine.WithBudget(ctx)) }

func invalid(kind, name string, errs field.ErrorList) error {
	return apierrors.NewInvalid(searchv1alpha1.SchemeGroupVersion.WithKind(kind).GroupKind(), name, errs)
}

// NewSearches returns the storage of searches.
func NewSearches(options Options) rest.Storage {
	plain := plainJSON(scheme.Codecs)
	return &definition.Question[*searchv1alpha1.Search]{
		Base: definition.Base{Object: &searchv1alpha1.Search{}, Singular: "search"},
		Answer: func(ctx context.Context, question *searchv1alpha1.Search) (runtime.Object, error) {
			ctx = bounded(ctx)
			requests, errs := newRequests(&question.Spec)
			if len(errs) > 0 {
				return nil, invalid("Search", question.Name, errs)
			}
			scope, err := serving.Scope(ctx, options.Scopes)
			if err != nil {
				return nil, err
			}
			question.Status = searchv1alpha1.SearchStatus{}
			out := &answer{question: question, plain: plain}
			if err := options.search(ctx, scope, requests, out); err != nil {
				return nil, err
			}
			return out, nil
		},
	}
}

// search adds the results of the requests and the warnings to the answer.
func (o Options) search(ctx context.Context, scope visibility.Scope, requests []*engine.Request, out *answer) error {
	now := time.Now()
	items := 0
	var names []string
	texts := map[string]string{}
	for i, request := range requests {
		request.Now = now
		result, err := o.Engine.Search(ctx, scope, request)
		if apierrors.IsBadRequest(err) {
			// The searches of the request exceed its budget.
			return out.forbidden(i, err.Error())
		}
		if err != nil {
			return serving.Error(ctx, err)
		}
		out.results = append(out.results, result)
		if items += serving.CountItems(result); i > 0 && items > serving.MaxItems {
			return out.forbidden(i, fmt.Sprintf("the searches of one request return more than %d items in total; use separate requests or lower limits", serving.MaxItems))
		}
		for _, filter := range request.Query.Filters {
			if result.Count == 0 {
				names = append(names, filter.Property)
			}
			if text := filter.OrderedText(); text != "" {
				texts[filter.Property] = text
			}
		}
		if result.Count > 0 && request.CountBy != "" && len(result.Counts) == 0 {
			names = append(names, request.CountBy)
		}
	}
	// These warnings come after all searches, so that they do not use their budget.
	warnings, err := o.propertyWarnings(ctx, scope, names, texts, now)
	if err != nil {
		return serving.Error(ctx, err)
	}
	stale, err := o.staleClusters(ctx, scope)
	if err != nil {
		return serving.Error(ctx, err)
	}
	out.warnings = append(warnings, stale...)
	return nil
}

// forbidden returns an API error for one of the searches.
func (a *answer) forbidden(search int, message string) error {
	path := field.NewPath("spec")
	if len(a.question.Spec.Searches) > 0 {
		path = path.Child("searches").Index(search)
	}
	return invalid("Search", a.question.Name, field.ErrorList{field.Forbidden(path, message)})
}

func newRequests(spec *searchv1alpha1.SearchSpec) ([]*engine.Request, field.ErrorList) {
	path := field.NewPath("spec")
	if len(spec.Searches) == 0 {
		request, errs := serving.Request(&spec.SearchRequest, path)
		return []*engine.Request{request}, errs
	}
	searches := path.Child("searches")
	if len(spec.Searches) > maxSearches {
		return nil, field.ErrorList{field.TooMany(searches, len(spec.Searches), maxSearches)}
	}
	if !equality.Semantic.DeepEqual(spec.SearchRequest, searchv1alpha1.SearchRequest{}) {
		return nil, field.ErrorList{field.Forbidden(searches, "cannot be combined with other fields of the spec")}
	}
	var out []*engine.Request
	var all field.ErrorList
	for i := range spec.Searches {
		request, errs := serving.Request(&spec.Searches[i], searches.Index(i))
		out, all = append(out, request), append(all, errs...)
	}
	return out, all
}

// propertyWarnings warns about names that no resource in the scope has, and about properties compared with a wrong text.
func (o Options) propertyWarnings(ctx context.Context, scope visibility.Scope, names []string, texts map[string]string, now time.Time) ([]string, error) {
	if len(names) == 0 && len(texts) == 0 {
		return nil, nil
	}
	schema, err := o.Engine.Schema(ctx, scope, &query.Query{}, now)
	if apierrors.IsBadRequest(err) {
		// The searches have used up the budget of the request. Their results are sufficient.
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	known := []string{query.Cluster}
	for i := range schema {
		known = append(known, schema[i].Name)
	}
	var out []string
	seen := sets.New(known...)
	for i := range schema {
		if name, text := schema[i].Name, texts[schema[i].Name]; text != "" && (schema[i].Type == query.Number || seen.Has(text)) {
			out = append(out, fmt.Sprintf("%q is no number, so values of %s are ordered as texts; a query cannot compare two properties", text, name))
		}
	}
	for _, name := range names {
		if query.Hidden(name) || seen.Has(name) {
			continue
		}
		seen.Insert(name)
		warning := fmt.Sprintf("no resource that you may find has the property %q", name)
		if near := query.Suggest(name, known); near != "" {
			warning += fmt.Sprintf("; did you mean %q?", near)
		}
		out = append(out, warning)
	}
	return out, nil
}

// staleClusters returns a warning for each cluster in the scope whose resources are unknown or may be out of date.
func (o Options) staleClusters(ctx context.Context, scope visibility.Scope) ([]string, error) {
	states, err := o.States(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	more := 0
	for i := range states {
		state := &states[i]
		if !state.Stale() || !scope.Cluster(state.Name) {
			continue
		}
		if len(out) == maxStaleClusters {
			more++
			continue
		}
		switch {
		case state.Absent:
			out = append(out, fmt.Sprintf("cluster %s has not reported its resources", state.Name))
		case state.Incomplete:
			out = append(out, fmt.Sprintf("cluster %s is reporting its resources again; results from it may be incomplete", state.Name))
		default:
			out = append(out, fmt.Sprintf("cluster %s has not reported since %s", state.Name, state.LastReport.UTC().Format(time.RFC3339)))
		}
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("%d more clusters have not reported, or not recently", more))
	}
	return out, nil
}
