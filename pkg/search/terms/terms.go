// Package terms turns what the API group search.open-cluster-management.io is asked
// into what an engine is asked.
package terms

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

const (
	// DefaultLimit is how many items and values are returned where no limit is given.
	DefaultLimit = 1000
	// MaxItems bounds the items, related ones included, of several searches in one request.
	// They are held until the answer is written. A single search may ask for all.
	MaxItems = 1_000_000

	// maxOrders and maxRelatedKinds bound what makes a search expensive and helps nobody.
	maxOrders       = 16
	maxRelatedKinds = 1000
)

var operators = []string{
	string(query.Equal), string(query.NotEqual), string(query.Less), string(query.LessOrEqual), string(query.Greater), string(query.GreaterOrEqual),
}

// Query is what terms look for.
func Query(terms *searchv1alpha1.SearchTerms, path *field.Path) (query.Query, field.ErrorList) {
	q, err := query.Parse(terms.Query)
	if err != nil {
		return query.Query{}, field.ErrorList{field.Invalid(path.Child("query"), terms.Query, err.Error())}
	}
	keywords, filters := len(q.Keywords), len(q.Filters)
	q.Keywords = append(q.Keywords, terms.Keywords...)
	for i := range terms.Filters {
		filter, errs := newFilter(&terms.Filters[i], path.Child("filters").Index(i))
		if len(errs) > 0 {
			return query.Query{}, errs
		}
		q.Filters = append(q.Filters, filter)
	}
	var bad *query.CheckError
	switch err := q.Check(); {
	case err == nil:
		return q, nil
	case !errors.As(err, &bad):
		return query.Query{}, field.ErrorList{field.InternalError(path, err)}
	case bad.Keyword >= keywords:
		i := bad.Keyword - keywords
		return query.Query{}, field.ErrorList{field.Invalid(path.Child("keywords").Index(i), terms.Keywords[i], bad.Message)}
	case bad.Filter >= filters:
		i := bad.Filter - filters
		given, at := &terms.Filters[i], path.Child("filters").Index(i)
		if bad.Value >= 0 && bad.Value < len(given.Values) {
			return query.Query{}, field.ErrorList{field.Invalid(at.Child("values").Index(bad.Value), given.Values[bad.Value], bad.Message)}
		}
		return query.Query{}, field.ErrorList{field.Invalid(at.Child("property"), given.Property, bad.Message)}
	default:
		return query.Query{}, field.ErrorList{field.Invalid(path.Child("query"), terms.Query, bad.Message)}
	}
}

func newFilter(given *searchv1alpha1.SearchFilter, path *field.Path) (query.Filter, field.ErrorList) {
	filter := query.Filter{Property: given.Property}
	if given.Operator != "" && !slices.Contains(operators, given.Operator) {
		return filter, field.ErrorList{field.NotSupported(path.Child("operator"), given.Operator, operators)}
	}
	if given.Property == "" {
		return filter, field.ErrorList{field.Required(path.Child("property"), "")}
	}
	if len(given.Values) == 0 {
		return filter, field.ErrorList{field.Required(path.Child("values"), "a filter compares with at least one value")}
	}
	for _, value := range given.Values {
		if given.Operator == "" {
			filter.Comparisons = append(filter.Comparisons, query.ParseComparison(value))
		} else {
			filter.Comparisons = append(filter.Comparisons, query.NewComparison(query.Op(given.Operator), value))
		}
	}
	return filter, nil
}

// Request is what one search asks of an engine.
func Request(given *searchv1alpha1.SearchRequest, path *field.Path) (*search.Request, field.ErrorList) {
	q, errs := Query(&given.SearchTerms, path)
	out := &search.Request{Query: q, Offset: int(given.Offset), Continue: given.Continue}
	outputs := []searchv1alpha1.SearchOutput{searchv1alpha1.OutputItems, searchv1alpha1.OutputCount, searchv1alpha1.OutputRelated}
	switch given.Output {
	case "", searchv1alpha1.OutputItems:
		out.Items = true
	case searchv1alpha1.OutputRelated:
		out.Items, out.Related = true, true
	case searchv1alpha1.OutputCount:
	default:
		errs = append(errs, field.NotSupported(path.Child("output"), given.Output, outputs))
	}
	if len(given.RelatedKinds) > 0 && !out.Related && given.Output != "" {
		errs = append(errs, field.Invalid(path.Child("relatedKinds"), given.RelatedKinds, "related resources are returned with the output Related only"))
	}
	if len(given.RelatedKinds) > 0 && given.Output == "" {
		out.Related = true
	}
	out.RelatedKinds = given.RelatedKinds
	var bad field.ErrorList
	out.Limit, bad = Limit(given.Limit, path.Child("limit"))
	errs = append(errs, bad...)
	out.Items = out.Items && out.Limit != 0
	out.RelatedLimit, bad = Limit(given.RelatedLimit, path.Child("relatedLimit"))
	errs = append(errs, bad...)
	out.RelatedItems = out.Related && out.RelatedLimit != 0
	if given.Offset < 0 {
		errs = append(errs, field.Invalid(path.Child("offset"), given.Offset, "must not be negative"))
	}
	if given.Offset > 0 && given.Continue != "" {
		errs = append(errs, field.Invalid(path.Child("offset"), given.Offset, "must not be given together with continue"))
	}
	if len(given.RelatedKinds) > maxRelatedKinds {
		errs = append(errs, field.TooMany(path.Child("relatedKinds"), len(given.RelatedKinds), maxRelatedKinds))
	}
	if len(given.OrderBy) > maxOrders {
		return out, append(errs, field.TooMany(path.Child("orderBy"), len(given.OrderBy), maxOrders))
	}
	for i, text := range given.OrderBy {
		order, err := newOrder(text)
		if err != nil {
			errs = append(errs, field.Invalid(path.Child("orderBy").Index(i), text, err.Error()))
			continue
		}
		out.OrderBy = append(out.OrderBy, order)
	}
	return out, errs
}

func newOrder(text string) (search.Order, error) {
	words := strings.Fields(text)
	if len(words) > 0 {
		if message := query.CheckProperty(words[0]); message != "" {
			return search.Order{}, errors.New(message)
		}
	}
	switch {
	case len(words) == 1, len(words) == 2 && strings.EqualFold(words[1], "asc"):
		return search.Order{Property: words[0]}, nil
	case len(words) == 2 && strings.EqualFold(words[1], "desc"):
		return search.Order{Property: words[0], Descending: true}, nil
	}
	return search.Order{}, fmt.Errorf(`must be the name of a property, which " asc" or " desc" may follow`)
}

// Property tells what is wrong with the name of a property, which must be given.
func Property(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	if message := query.CheckProperty(name); message != "" {
		return field.ErrorList{field.Invalid(path, name, message)}
	}
	return nil
}

// Limit is a limit that is given, or the default one.
func Limit(given *int32, path *field.Path) (int, field.ErrorList) {
	if given == nil {
		return DefaultLimit, nil
	}
	if *given < -1 {
		return 0, field.ErrorList{field.Invalid(path, *given, "must be at least -1, which is for all")}
	}
	return int(*given), nil
}

// Properties are the properties that a query names, each once.
func Properties(q *query.Query) []string {
	var out []string
	for i := range q.Filters {
		if name := q.Filters[i].Property; !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// Held is how many items a result has, related ones included.
func Held(result *search.Result) int {
	held := len(result.Items)
	for i := range result.Related {
		held += len(result.Related[i].Items)
	}
	return held
}
