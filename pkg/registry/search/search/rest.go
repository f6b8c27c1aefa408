// Package search serves searches, searchcompletions and searchschemas: questions
// about the fleet, answered within what the caller may find.
package search

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	engine "open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/ingest"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/pkg/search/terms"
)

const (
	// maxSearches bounds the searches of one request.
	maxSearches = 100
	// maxNamed bounds the clusters that a warning names.
	maxNamed = 20
)

// Options are what searches need.
type Options struct {
	Engine engine.Engine
	Scopes engine.Scopes
	// States tells how current the clusters' reports are.
	States func(context.Context) ([]ingest.State, error)
}

// create is what a question does when it is created.
type create func(ctx context.Context, obj runtime.Object) (runtime.Object, error)

// questionREST serves a resource that can only be created and is answered at once.
type questionREST struct {
	singular string
	newFunc  func() runtime.Object
	answer   create
}

var (
	_ rest.Creater              = &questionREST{}
	_ rest.Scoper               = &questionREST{}
	_ rest.SingularNameProvider = &questionREST{}
)

// New implements rest.Storage.
func (r *questionREST) New() runtime.Object { return r.newFunc() }

// Destroy implements rest.Storage.
func (r *questionREST) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (r *questionREST) NamespaceScoped() bool { return false }

// GetSingularName implements rest.SingularNameProvider.
func (r *questionREST) GetSingularName() string { return r.singular }

// Create implements rest.Creater.
func (r *questionREST) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	// Nobody owns the fields of what is not stored.
	metadata, err := meta.Accessor(obj)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	metadata.SetManagedFields(nil)
	return r.answer(engine.WithBudget(ctx), obj)
}

// NewSearches serves searches.
func NewSearches(options Options) rest.Storage {
	plain := plainJSON(scheme.Codecs)
	return &questionREST{
		singular: "search", newFunc: func() runtime.Object { return &searchv1alpha1.Search{} },
		answer: func(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
			question, ok := obj.(*searchv1alpha1.Search)
			if !ok {
				return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Search: %T", obj))
			}
			requests, errs := newRequests(&question.Spec)
			if len(errs) > 0 {
				return nil, apierrors.NewInvalid(searchv1alpha1.SchemeGroupVersion.WithKind("Search").GroupKind(), question.Name, errs)
			}
			scope, err := terms.Scope(ctx, options.Scopes)
			if err != nil {
				return nil, err
			}
			out := &answer{question: question, plain: plain}
			out.question.Status = searchv1alpha1.SearchStatus{}
			now := time.Now()
			held := 0
			for i, request := range requests {
				request.Now = now
				result, err := options.Engine.Search(ctx, scope, request)
				if apierrors.IsBadRequest(err) {
					return nil, overBudget(question, i, err)
				}
				if err != nil {
					return nil, terms.Error(ctx, err)
				}
				out.results = append(out.results, result)
				if held += terms.Held(result); i > 0 && held > terms.MaxItems {
					return nil, tooManyItems(question.Name, i)
				}
				if result.Count == 0 {
					unknown, err := unknownProperties(ctx, options.Engine, scope, &request.Query, now)
					if err != nil {
						return nil, terms.Error(ctx, err)
					}
					for _, warning := range unknown {
						if !slices.Contains(out.warnings, warning) {
							out.warnings = append(out.warnings, warning)
						}
					}
				}
			}
			stale, err := staleClusters(ctx, options.States, scope)
			if err != nil {
				return nil, terms.Error(ctx, err)
			}
			out.warnings = append(out.warnings, stale...)
			return out, nil
		},
	}
}

// overBudget refuses a request of which the searches up to one need more than a request may take.
func overBudget(question *searchv1alpha1.Search, at int, err error) error {
	path := field.NewPath("spec")
	if len(question.Spec.Searches) > 0 {
		path = path.Child("searches").Index(at)
	}
	return apierrors.NewInvalid(searchv1alpha1.SchemeGroupVersion.WithKind("Search").GroupKind(), question.Name, field.ErrorList{field.Forbidden(path, err.Error())})
}

// tooManyItems refuses a request of which the searches up to one find too much together.
func tooManyItems(name string, at int) error {
	return apierrors.NewInvalid(searchv1alpha1.SchemeGroupVersion.WithKind("Search").GroupKind(), name, field.ErrorList{field.Forbidden(
		field.NewPath("spec", "searches").Index(at),
		fmt.Sprintf("the searches of one request find more than %d items together; ask for them one by one, or with lower limits", terms.MaxItems),
	)})
}

func newRequests(spec *searchv1alpha1.SearchSpec) ([]*engine.Request, field.ErrorList) {
	path := field.NewPath("spec")
	if len(spec.Searches) == 0 {
		request, errs := terms.Request(&spec.SearchRequest, path)
		return []*engine.Request{request}, errs
	}
	many := path.Child("searches")
	if len(spec.Searches) > maxSearches {
		return nil, field.ErrorList{field.TooMany(many, len(spec.Searches), maxSearches)}
	}
	if single := spec.SearchRequest; !isZero(&single) {
		return nil, field.ErrorList{field.Forbidden(many, "no other field of the spec may be given with several searches")}
	}
	var out []*engine.Request
	var all field.ErrorList
	for i := range spec.Searches {
		request, errs := terms.Request(&spec.Searches[i], many.Index(i))
		out, all = append(out, request), append(all, errs...)
	}
	return out, all
}

func isZero(r *searchv1alpha1.SearchRequest) bool {
	return r.Query == "" && len(r.Keywords) == 0 && len(r.Filters) == 0 && r.Output == "" && len(r.RelatedKinds) == 0 &&
		len(r.OrderBy) == 0 && r.Limit == nil && r.RelatedLimit == nil && r.Offset == 0 && r.Continue == ""
}

// unknownProperties names properties of a query that found nothing, of which nothing
// that the caller may find has any.
func unknownProperties(ctx context.Context, from engine.Engine, scope visibility.Scope, q *query.Query, now time.Time) ([]string, error) {
	named := terms.Properties(q)
	if len(named) == 0 {
		return nil, nil
	}
	schema, err := from.Schema(ctx, scope, &query.Query{}, now)
	if err != nil {
		return nil, err
	}
	known := []string{query.Cluster}
	for i := range schema {
		known = append(known, schema[i].Name)
	}
	var out []string
	for _, name := range named {
		if query.Hidden(name) || slices.Contains(known, name) {
			continue
		}
		warning := fmt.Sprintf("no resource that you may find has the property %q", name)
		if near := query.Suggest(name, known); near != "" {
			warning += fmt.Sprintf("; did you mean %q?", near)
		}
		out = append(out, warning)
	}
	return out, nil
}

// staleClusters names the clusters that the caller may view and whose resources are
// not, or no longer reliably, known.
func staleClusters(ctx context.Context, from func(context.Context) ([]ingest.State, error), scope visibility.Scope) ([]string, error) {
	states, err := from(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	more := 0
	for i := range states {
		state := &states[i]
		if !state.Absent && !state.Incomplete && !state.Silent || state.Hub || state.Removed || !scope.Cluster(state.Name) {
			continue
		}
		if len(out) == maxNamed {
			more++
			continue
		}
		switch {
		case state.Absent:
			out = append(out, fmt.Sprintf("cluster %s has not reported its resources", state.Name))
		case state.Incomplete:
			out = append(out, fmt.Sprintf("cluster %s is reporting its resources again; what is found of it may be incomplete", state.Name))
		default:
			out = append(out, fmt.Sprintf("cluster %s has been silent since %s", state.Name, state.LastReport.UTC().Format(time.RFC3339)))
		}
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("%d more clusters are silent or have not reported", more))
	}
	return out, nil
}
