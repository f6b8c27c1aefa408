package serving

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
	// DefaultLimit is the limit of items and values of a request without a limit.
	DefaultLimit = 1000
	// MaxItems bounds the items of several searches in one request, including related items. They
	// stay in memory until the response is written. A single search may request all items.
	MaxItems = 1_000_000

	maxOrders       = 16
	maxRelatedKinds = 1000
	// maxProperty bounds the name of a property, as that of a reported one. maxPrefix bounds the prefix of a completion.
	maxProperty = 128
	maxPrefix   = 1 << 10
)

var operators = []string{
	string(query.Equal), string(query.NotEqual), string(query.Less), string(query.LessOrEqual), string(query.Greater), string(query.GreaterOrEqual),
}

// Query translates search terms into a query.
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
		in, at := &terms.Filters[i], path.Child("filters").Index(i)
		if bad.Value >= 0 && bad.Value < len(in.Values) {
			return query.Query{}, field.ErrorList{field.Invalid(at.Child("values").Index(bad.Value), in.Values[bad.Value], bad.Message)}
		}
		return query.Query{}, field.ErrorList{field.Invalid(at.Child("property"), in.Property, bad.Message)}
	default:
		return query.Query{}, field.ErrorList{field.Invalid(path.Child("query"), terms.Query, bad.Message)}
	}
}

func newFilter(in *searchv1alpha1.SearchFilter, path *field.Path) (query.Filter, field.ErrorList) {
	filter := query.Filter{Property: in.Property}
	if in.Operator != "" && !slices.Contains(operators, in.Operator) {
		return filter, field.ErrorList{field.NotSupported(path.Child("operator"), in.Operator, operators)}
	}
	if in.Property == "" {
		return filter, field.ErrorList{field.Required(path.Child("property"), "")}
	}
	if len(in.Values) == 0 {
		return filter, field.ErrorList{field.Required(path.Child("values"), "a filter requires at least one value")}
	}
	for _, value := range in.Values {
		if in.Operator == "" {
			filter.Comparisons = append(filter.Comparisons, query.ParseComparison(value))
		} else {
			filter.Comparisons = append(filter.Comparisons, query.NewComparison(query.Op(in.Operator), value))
		}
	}
	return filter, nil
}

// Request translates a search into a request to an engine.
func Request(in *searchv1alpha1.SearchRequest, path *field.Path) (*search.Request, field.ErrorList) {
	q, errs := Query(&in.SearchTerms, path)
	out := &search.Request{Query: q, Offset: int(in.Offset), Continue: in.Continue}
	outputs := []searchv1alpha1.SearchOutput{searchv1alpha1.OutputItems, searchv1alpha1.OutputCount, searchv1alpha1.OutputRelated}
	switch in.Output {
	case "", searchv1alpha1.OutputItems:
		out.Items = true
	case searchv1alpha1.OutputRelated:
		out.Items, out.Related = true, true
	case searchv1alpha1.OutputCount:
	default:
		errs = append(errs, field.NotSupported(path.Child("output"), in.Output, outputs))
	}
	if len(in.RelatedKinds) > 0 && !out.Related && in.Output != "" {
		errs = append(errs, field.Invalid(path.Child("relatedKinds"), in.RelatedKinds, "requires the output Related"))
	}
	if len(in.RelatedKinds) > 0 && in.Output == "" {
		out.Related = true
	}
	out.RelatedKinds = in.RelatedKinds
	var bad field.ErrorList
	out.Limit, bad = Limit(in.Limit, path.Child("limit"))
	errs = append(errs, bad...)
	out.Items = out.Items && out.Limit != 0
	out.RelatedLimit = out.Limit
	if in.RelatedLimit != nil {
		out.RelatedLimit, bad = Limit(in.RelatedLimit, path.Child("relatedLimit"))
		errs = append(errs, bad...)
	}
	out.RelatedItems = out.Related && out.RelatedLimit != 0
	if in.CountBy != "" {
		out.CountBy, out.CountLimit = in.CountBy, DefaultLimit
		errs = append(errs, Property(in.CountBy, path.Child("countBy"))...)
	}
	if in.Offset < 0 {
		errs = append(errs, field.Invalid(path.Child("offset"), in.Offset, "must not be negative"))
	}
	if in.Offset > 0 && in.Continue != "" {
		errs = append(errs, field.Invalid(path.Child("offset"), in.Offset, "cannot be combined with continue"))
	}
	if len(in.RelatedKinds) > maxRelatedKinds {
		errs = append(errs, field.TooMany(path.Child("relatedKinds"), len(in.RelatedKinds), maxRelatedKinds))
	}
	if len(in.OrderBy) > maxOrders {
		return out, append(errs, field.TooMany(path.Child("orderBy"), len(in.OrderBy), maxOrders))
	}
	for i, text := range in.OrderBy {
		order, err := Order(text)
		message := CheckProperty(order.Property)
		if err != nil {
			message = err.Error()
		}
		if message != "" {
			errs = append(errs, field.Invalid(path.Child("orderBy").Index(i), shortened(text), message))
			continue
		}
		// A repeated property changes no order, but its value would be several times in the continue token.
		if !slices.ContainsFunc(out.OrderBy, func(o search.Order) bool { return o.Property == order.Property }) {
			out.OrderBy = append(out.OrderBy, order)
		}
	}
	return out, errs
}

// Order parses an order: the name of a property, optionally followed by asc or desc.
func Order(text string) (search.Order, error) {
	words := strings.Fields(text)
	switch {
	case len(words) == 1, len(words) == 2 && strings.EqualFold(words[1], "asc"):
		return search.Order{Property: words[0]}, nil
	case len(words) == 2 && strings.EqualFold(words[1], "desc"):
		return search.Order{Property: words[0], Descending: true}, nil
	}
	return search.Order{}, errors.New(`must be the name of a property, optionally followed by "asc" or "desc"`)
}

// Property validates the name of a property, which is required.
func Property(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	if message := CheckProperty(name); message != "" {
		return field.ErrorList{field.Invalid(path, shortened(name), message)}
	}
	return nil
}

// CheckProperty returns the reason why a request must not name a property, or "" if it may.
func CheckProperty(name string) string {
	if len(name) > maxProperty {
		return fmt.Sprintf("must have at most %d bytes", maxProperty)
	}
	return query.CheckProperty(name)
}

// Prefix validates the prefix of a completion.
func Prefix(prefix string, path *field.Path) field.ErrorList {
	if len(prefix) > maxPrefix {
		return field.ErrorList{field.Invalid(path, shortened(prefix), fmt.Sprintf("must have at most %d bytes", maxPrefix))}
	}
	return nil
}

// shortened returns the begin of a value that is too long for an error message.
func shortened(value string) string {
	if len(value) <= maxProperty {
		return value
	}
	return strings.ToValidUTF8(value[:maxProperty], "") + "..."
}

// Limit returns a limit, or the default limit if there is none.
func Limit(limit *int32, path *field.Path) (int, field.ErrorList) {
	if limit == nil {
		return DefaultLimit, nil
	}
	if *limit < -1 {
		return 0, field.ErrorList{field.Invalid(path, *limit, "must be at least -1; -1 returns all")}
	}
	return int(*limit), nil
}

// CountItems returns the number of items in a result, including related items.
func CountItems(result *search.Result) int {
	count := len(result.Items)
	for i := range result.Related {
		count += len(result.Related[i].Items)
	}
	return count
}
