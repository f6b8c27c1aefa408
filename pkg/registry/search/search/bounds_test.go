package search

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/ptr"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	engine "open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
	"open-cluster-management.io/hub-apiserver/pkg/search/ingest"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

type everyone struct{}

func (everyone) Scope(context.Context, user.Info) (visibility.Scope, error) {
	return visibility.Everything(), nil
}

func (everyone) Subscribe(user.Info) (<-chan struct{}, func()) { return nil, func() {} }

// pods is the number of pods that exceeds the limit for a hundred searches.
const pods = 10_100

func ask(t *testing.T, options embedded.Options) func(spec *searchv1alpha1.SearchSpec) (runtime.Object, error) {
	t.Helper()
	store, err := embedded.Open(t.TempDir(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	report := &engine.Report{Cluster: "c1", Full: true, Time: time.Now()}
	for i := range pods {
		properties, err := query.DecodeProperties(fmt.Appendf(nil, `{"kind":"Pod","name":"pod-%d"}`, i))
		if err != nil {
			t.Fatal(err)
		}
		report.Put = append(report.Put, engine.Resource{UID: fmt.Sprintf("c1/%d", i), Properties: properties})
	}
	if _, err := store.Apply(t.Context(), report); err != nil {
		t.Fatal(err)
	}
	storage := NewSearches(Options{
		Engine: store, Scopes: everyone{},
		States: func(context.Context) ([]ingest.State, error) { return nil, nil },
	}).(rest.Creater)
	ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: "alice"})
	return func(spec *searchv1alpha1.SearchSpec) (runtime.Object, error) {
		return storage.Create(ctx, &searchv1alpha1.Search{Spec: *spec}, rest.ValidateAllObjectFunc, nil)
	}
}

func TestBoundsOfARequest(t *testing.T) {
	ask := ask(t, embedded.Options{})
	all := searchv1alpha1.SearchRequest{SearchTerms: searchv1alpha1.SearchTerms{Query: "kind:Pod"}, Limit: ptr.To[int32](-1)}
	ordered, related := all, all
	ordered.OrderBy = slices.Repeat([]string{"name"}, 17)
	related.RelatedKinds, related.Output = slices.Repeat([]string{"Node"}, 1001), searchv1alpha1.OutputRelated
	counted := all
	counted.Output = searchv1alpha1.OutputCount
	for _, test := range []struct {
		name string
		spec searchv1alpha1.SearchSpec
		want string
	}{
		{"a search for all", searchv1alpha1.SearchSpec{SearchRequest: all}, ""},
		{"several searches for all", searchv1alpha1.SearchSpec{Searches: slices.Repeat([]searchv1alpha1.SearchRequest{all}, 20)}, ""},
		{"searches that exceed the budget together", searchv1alpha1.SearchSpec{Searches: slices.Repeat([]searchv1alpha1.SearchRequest{all}, 100)},
			"spec.searches[24]: Forbidden: the search is too expensive"},
		{"searches that only count", searchv1alpha1.SearchSpec{Searches: slices.Repeat([]searchv1alpha1.SearchRequest{counted}, 100)}, ""},
		{"too many orders", searchv1alpha1.SearchSpec{SearchRequest: ordered}, "spec.orderBy: Too many: 17: must have at most 16 items"},
		{"counts by a text that cannot be a property", searchv1alpha1.SearchSpec{SearchRequest: searchv1alpha1.SearchRequest{CountBy: "a b"}}, "spec.countBy: Invalid value"},
		{"an order by a long property", searchv1alpha1.SearchSpec{SearchRequest: searchv1alpha1.SearchRequest{OrderBy: []string{strings.Repeat("a", 129)}}},
			"aaa...\": must have at most 128 bytes"},
		{"counts in addition to several searches", searchv1alpha1.SearchSpec{SearchRequest: searchv1alpha1.SearchRequest{CountBy: "kind"}, Searches: []searchv1alpha1.SearchRequest{counted}},
			"spec.searches: Forbidden: cannot be combined with other fields"},
		{"too many related kinds", searchv1alpha1.SearchSpec{SearchRequest: related}, "spec.relatedKinds: Too many: 1001: must have at most 1000 items"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := ask(&test.spec)
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error of the search = %v, want %s", err, test.want)
			}
		})
	}
}

func TestBoundsOfACompletion(t *testing.T) {
	engine, err := embedded.Open(t.TempDir(), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	completions := NewCompletions(Options{Engine: engine, Scopes: everyone{}}).(rest.Creater)
	ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: "alice"})
	for _, test := range []struct{ property, prefix, want string }{
		{strings.Repeat("a", 128), strings.Repeat("a", 1024), ""},
		{strings.Repeat("a", 129), "", "spec.property: Invalid value: \"" + strings.Repeat("a", 128) + "...\": must have at most 128 bytes"},
		{"name", strings.Repeat("a", 1025), "spec.prefix: Invalid value: \"" + strings.Repeat("a", 128) + "...\": must have at most 1024 bytes"},
		{"a b", "", "spec.property: Invalid value: \"a b\""},
	} {
		_, err := completions.Create(ctx, &searchv1alpha1.SearchCompletion{Spec: searchv1alpha1.SearchCompletionSpec{Property: test.property, Prefix: test.prefix}}, rest.ValidateAllObjectFunc, nil)
		switch {
		case test.want == "" && err != nil:
			t.Error(err)
		case test.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.want)):
			t.Errorf("error of a completion of %.10q with prefix %.10q = %v, want %s", test.property, test.prefix, err, test.want)
		}
	}
}

func TestCountBy(t *testing.T) {
	ask := ask(t, embedded.Options{})
	for _, test := range []struct {
		property  string
		limit     int32
		output    searchv1alpha1.SearchOutput
		want      []searchv1alpha1.PropertyValue
		wantItems int
		wantMore  bool
	}{
		{"kind", 1, "", []searchv1alpha1.PropertyValue{{Value: "Pod", Count: pods}}, 1, false},
		{"kind", 0, searchv1alpha1.OutputCount, []searchv1alpha1.PropertyValue{{Value: "Pod", Count: pods}}, 0, false},
		{"name", 2, "", []searchv1alpha1.PropertyValue{{Value: "pod-0", Count: 1}, {Value: "pod-1", Count: 1}, {Value: "pod-10", Count: 1}}, 2, true},
		{"knid", 2, "", nil, 2, false},
	} {
		got, err := ask(&searchv1alpha1.SearchSpec{SearchRequest: searchv1alpha1.SearchRequest{
			SearchTerms: searchv1alpha1.SearchTerms{Query: "kind:Pod"}, Limit: &test.limit, Output: test.output, CountBy: test.property,
		}})
		if err != nil {
			t.Fatal(err)
		}
		status := got.(runtime.CacheableObject).GetObject().(*searchv1alpha1.Search).Status
		wantCounts := len(test.want)
		if test.wantMore {
			wantCounts = 1000
		}
		if len(status.Counts) != wantCounts || !slices.Equal(status.Counts[:len(test.want)], test.want) || status.MoreCounts != test.wantMore {
			t.Errorf("counts by %s = %d values %v, more %t, want %d values that begin with %v, more %t",
				test.property, len(status.Counts), status.Counts[:min(3, len(status.Counts))], status.MoreCounts, wantCounts, test.want, test.wantMore)
		}
		var wantWarnings []string
		if test.want == nil {
			wantWarnings = []string{`no resource that you may find has the property "knid"; did you mean "kind"?`}
		}
		if !slices.Equal(status.Warnings, wantWarnings) {
			t.Errorf("warnings of counts by %s = %q, want %q", test.property, status.Warnings, wantWarnings)
		}
		if status.Count != pods || len(status.Items) != test.wantItems {
			t.Errorf("search with counts by %s = %d items of %d, want %d of %d", test.property, len(status.Items), status.Count, test.wantItems, pods)
		}
	}
}

func TestUnknownPropertyWarnsOnce(t *testing.T) {
	unknown := searchv1alpha1.SearchRequest{SearchTerms: searchv1alpha1.SearchTerms{Query: "nmae:web"}}
	got, err := ask(t, embedded.Options{})(&searchv1alpha1.SearchSpec{Searches: slices.Repeat([]searchv1alpha1.SearchRequest{unknown}, 3)})
	if err != nil {
		t.Fatal(err)
	}
	search := got.(runtime.CacheableObject).GetObject().(*searchv1alpha1.Search)
	want := []string{`no resource that you may find has the property "nmae"; did you mean "name"?`}
	if !slices.Equal(search.Status.Warnings, want) {
		t.Errorf("warnings = %q, want %q", search.Status.Warnings, want)
	}
}

// TestComparisonOfPropertiesWarns checks that a value that is the name of a property causes a warning, because it is
// taken for a text.
func TestComparisonOfPropertiesWarns(t *testing.T) {
	for text, want := range map[string][]string{
		"name<kind name>kind,z": {`"kind" is no number, so values of name are ordered as texts; a query cannot compare two properties`},
		"name>=pod-1":           nil,
		"name!=kind name<5":     nil,
	} {
		got, err := ask(t, embedded.Options{})(&searchv1alpha1.SearchSpec{SearchRequest: searchv1alpha1.SearchRequest{SearchTerms: searchv1alpha1.SearchTerms{Query: text}}})
		if err != nil {
			t.Fatal(err)
		}
		if warnings := got.(runtime.CacheableObject).GetObject().(*searchv1alpha1.Search).Status.Warnings; !slices.Equal(warnings, want) {
			t.Errorf("warnings of %s = %q, want %q", text, warnings, want)
		}
	}
}

// TestWarningsUseNoBudget checks that a search without results succeeds without the warning if its budget is too small
// for the schema.
func TestWarningsUseNoBudget(t *testing.T) {
	unknown := searchv1alpha1.SearchRequest{SearchTerms: searchv1alpha1.SearchTerms{Query: "nmae:web"}}
	got, err := ask(t, embedded.Options{MaxCost: 150 * time.Microsecond})(&searchv1alpha1.SearchSpec{Searches: slices.Repeat([]searchv1alpha1.SearchRequest{unknown}, 3)})
	if err != nil {
		t.Fatal(err)
	}
	search := got.(runtime.CacheableObject).GetObject().(*searchv1alpha1.Search)
	if len(search.Status.Warnings) > 0 || len(search.Status.Results) != 3 {
		t.Errorf("search = %+v, want 3 results without warnings", search.Status)
	}
}
