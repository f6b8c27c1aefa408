package graphql

import (
	"math"
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/pkg/search/terms"
)

const (
	// mostInputs bounds every list of an input but for values, of which clients send one for each
	// cluster or name.
	mostInputs = 100
	mostValues = 1000
	unlimited  = -1
	// mostRelated bounds the related items of each kind where no limit of -1 asks for all;
	// their count is exact.
	mostRelated = 10_000
	// applicationDepth is how far applications are from what they consist of.
	applicationDepth = 3
	application      = "application"
)

// searchInput is SearchInput.
type searchInput struct {
	Keywords     *[]*string
	Filters      *[]*searchFilter
	Limit        *int32
	Offset       *int32
	OrderBy      *string
	RelatedKinds *[]*string
}

// searchFilter is SearchFilter.
type searchFilter struct {
	Property string
	Values   []*string
}

// query is what the input looks for. Filters without values are left out, as public
// clients expect; a nil input looks for everything.
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
		if len(*s.Filters) > mostInputs {
			return out, badRequest("filters has more than %d elements", mostInputs)
		}
		for _, given := range *s.Filters {
			if given == nil || len(given.Values) == 0 {
				continue
			}
			filter := query.Filter{Property: given.Property}
			if len(given.Values) > mostValues {
				return out, badRequest("the filter %q has more than %d values", given.Property, mostValues)
			}
			for _, value := range given.Values {
				if value == nil {
					return out, badRequest("the filter %q has a value that is null", given.Property)
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

// request is the search that the input asks for; what of its result is wanted is left open.
func (s *searchInput) request() (*search.Request, error) {
	q, err := s.query()
	switch {
	case err != nil:
		return nil, err
	case len(q.Keywords)+len(q.Filters) == 0:
		return nil, badRequest("query input must contain a filter or keyword")
	}
	out := &search.Request{Query: q, Limit: limit(s.Limit), RelatedDepth: 1, RelatedLimit: mostRelated}
	if out.Limit == unlimited {
		out.RelatedLimit = unlimited
	}
	if s.Offset != nil {
		if *s.Offset < 0 {
			return nil, badRequest("offset must not be negative")
		}
		out.Offset = int(*s.Offset)
	}
	if s.OrderBy != nil && strings.TrimSpace(*s.OrderBy) != "" {
		order, err := order(*s.OrderBy)
		if err != nil {
			return nil, err
		}
		out.OrderBy = []search.Order{order}
	}
	if out.RelatedKinds, err = texts("relatedKinds", s.RelatedKinds); err != nil {
		return nil, err
	}
	if applications(&q, out.RelatedKinds) {
		out.RelatedDepth = applicationDepth
	}
	return out, nil
}

// applications tells whether a search is about applications, which are related to what
// they consist of over several edges.
func applications(q *query.Query, relatedKinds []string) bool {
	for _, kind := range relatedKinds {
		if strings.EqualFold(kind, application) {
			return true
		}
	}
	for i := range q.Filters {
		if q.Filters[i].Property != query.Kind {
			continue
		}
		for _, c := range q.Filters[i].Comparisons {
			if c.Op == query.Equal && strings.EqualFold(c.Text, application) {
				return true
			}
		}
	}
	return false
}

func order(text string) (search.Order, error) {
	words := strings.Fields(text)
	out := search.Order{Property: words[0]}
	switch {
	case len(words) == 1, len(words) == 2 && strings.EqualFold(words[1], "asc"):
		return out, nil
	case len(words) == 2 && strings.EqualFold(words[1], "desc"):
		out.Descending = true
		return out, nil
	}
	return out, badRequest(`orderBy must be a property that " asc" or " desc" may follow`)
}

// limit is how much is wanted; what is neither positive nor -1 means the default, as
// public clients expect.
func limit(given *int32) int {
	switch {
	case given != nil && *given == unlimited:
		return unlimited
	case given == nil || *given <= 0:
		return terms.DefaultLimit
	}
	return int(*given)
}

func texts(name string, given *[]*string) ([]string, error) {
	if given == nil {
		return nil, nil
	}
	if len(*given) > mostInputs {
		return nil, badRequest("%s has more than %d elements", name, mostInputs)
	}
	var out []string
	for _, text := range *given {
		if text != nil {
			out = append(out, *text)
		}
	}
	return out, nil
}

// count is a count as GraphQL has it: 32 bits.
func count(n int) *int32 {
	out := int32(min(n, math.MaxInt32))
	return &out
}
