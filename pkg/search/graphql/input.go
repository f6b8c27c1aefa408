package graphql

import (
	"math"
	"slices"
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/pkg/search/serving"
)

const (
	// maxInputs bounds each list of an input except values, because clients send one value for each
	// cluster or name.
	maxInputs = 100
	maxValues = 1000
	unlimited = -1
	// applicationDepth is the distance between an application and its resources.
	applicationDepth = 3
)

// searchInput is the GraphQL type SearchInput.
type searchInput struct {
	Keywords     *[]*string
	Filters      *[]*searchFilter
	Limit        *int32
	Offset       *int32
	OrderBy      *string
	RelatedKinds *[]*string
}

// searchFilter is the GraphQL type SearchFilter.
type searchFilter struct {
	Property string
	Values   []*string
}

// query returns the query of the input. Upstream clients expect that filters without values have no
// effect. A nil input matches all resources.
func (s *searchInput) query() (query.Query, error) {
	var out query.Query
	if s == nil {
		return out, nil
	}
	keywords, err := texts("keywords", s.Keywords)
	if err != nil {
		return out, err
	}
	for _, keyword := range keywords {
		if keyword != "" {
			out.Keywords = append(out.Keywords, keyword)
		}
	}
	if s.Filters != nil {
		if len(*s.Filters) > maxInputs {
			return out, badRequest("filters has more than %d elements", maxInputs)
		}
		for _, in := range *s.Filters {
			if in == nil || len(in.Values) == 0 {
				continue
			}
			filter := query.Filter{Property: in.Property}
			if len(in.Values) > maxValues {
				return out, badRequest("the filter %q has more than %d values", in.Property, maxValues)
			}
			for _, value := range in.Values {
				if value == nil {
					return out, badRequest("the filter %q has a value that is null", in.Property)
				}
				filter.Comparisons = append(filter.Comparisons, query.ParseComparison(*value))
			}
			out.Filters = append(out.Filters, filter)
		}
	}
	if err := out.Check(); err != nil {
		return out, badRequest("%s", err)
	}
	return out, nil
}

// request returns the search of the input. The caller sets the requested parts of the result.
func (s *searchInput) request() (*search.Request, error) {
	q, err := s.query()
	switch {
	case err != nil:
		return nil, err
	case len(q.Keywords)+len(q.Filters) == 0:
		return nil, badRequest("query input must contain a filter or keyword")
	}
	out := &search.Request{Query: q, Limit: limit(s.Limit)}
	out.RelatedLimit = out.Limit
	if s.Offset != nil {
		if *s.Offset < 0 {
			return nil, badRequest("offset must not be negative")
		}
		out.Offset = int(*s.Offset)
	}
	if s.OrderBy != nil && strings.TrimSpace(*s.OrderBy) != "" {
		order, err := serving.Order(*s.OrderBy)
		if err != nil {
			return nil, badRequest("orderBy: %s", err)
		}
		if message := serving.CheckProperty(order.Property); message != "" {
			return nil, badRequest("orderBy: %s", message)
		}
		out.OrderBy = []search.Order{order}
	}
	if out.RelatedKinds, err = texts("relatedKinds", s.RelatedKinds); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(out.RelatedKinds, isApplication) || slices.ContainsFunc(q.Filters, ofApplications) {
		out.RelatedDepth = applicationDepth
	}
	return out, nil
}

func isApplication(kind string) bool { return strings.EqualFold(kind, "Application") }

// ofApplications reports whether applications match a filter of kinds.
func ofApplications(filter query.Filter) bool {
	return filter.Property == query.Kind && slices.ContainsFunc(filter.Comparisons, func(c query.Comparison) bool {
		return c.Op == query.Equal && isApplication(c.Text)
	})
}

// limit returns the limit of a search. Upstream clients expect the default limit for values that are
// neither positive nor -1.
func limit(requested *int32) int {
	switch {
	case requested != nil && *requested == unlimited:
		return unlimited
	case requested == nil || *requested <= 0:
		return serving.DefaultLimit
	}
	return int(*requested)
}

func texts(name string, elements *[]*string) ([]string, error) {
	if elements == nil {
		return nil, nil
	}
	if len(*elements) > maxInputs {
		return nil, badRequest("%s has more than %d elements", name, maxInputs)
	}
	var out []string
	for _, text := range *elements {
		if text != nil {
			out = append(out, *text)
		}
	}
	return out, nil
}

// count limits a count to the 32 bits of a GraphQL Int.
func count(n int) *int32 {
	out := int32(min(n, math.MaxInt32))
	return &out
}
