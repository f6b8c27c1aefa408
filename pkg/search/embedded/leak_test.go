package embedded_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/test/fleetgen"
)

type callerKey struct{}

func as(ctx context.Context, caller string) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// leakEngine returns an engine with a small budget, with resources of a cluster that a caller may view, and of another
// cluster. Extra names a property of the resources of the other cluster.
func leakEngine(t *testing.T, prefix, extra string, hidden int) *embedded.Engine {
	t.Helper()
	engine := open(t, t.TempDir(), embedded.Options{MaxCost: 20 * time.Millisecond, Caller: func(ctx context.Context) string {
		caller, _ := ctx.Value(callerKey{}).(string)
		return caller
	}})
	t.Cleanup(func() { closed(t, engine) })
	for i, c := range []struct {
		name, prefix, extra string
		resources           int
	}{{fleetgen.ClusterName(1), "web", "replicas", 3000}, {fleetgen.ClusterName(2), prefix, extra, hidden}} {
		report := &search.Report{Cluster: c.name, Full: true}
		for j := range c.resources {
			text := func(name, value string) query.Property {
				return query.Property{Name: name, Type: query.String, Leaves: []query.Leaf{{Text: value}}}
			}
			kind := "Pod"
			if i == 1 {
				kind = "Secret"
			}
			report.Put = append(report.Put, search.Resource{UID: fmt.Sprintf("%s/%d", c.name, j), Properties: query.Properties{
				text(c.extra, fmt.Sprint(j%50)),
				text("created", fmt.Sprintf("2025-01-02T03:%02d:%02dZ", j/60%60, j%60)),
				text("kind", kind),
				{Name: "label", Type: query.Map, Leaves: []query.Leaf{{Key: c.prefix + "-key", Text: fmt.Sprint(j % 100)}}},
				text("name", fmt.Sprintf("%s-pass-%05d-x", c.prefix, j)),
			}})
		}
		apply(t, engine, report)
	}
	return engine
}

// spare runs a question as one request, and returns what it finds and how many empty searches the rest of the budget
// allows.
func spare(ctx context.Context, t *testing.T, engine search.Engine, scope visibility.Scope, ask func(context.Context) (any, error)) string {
	t.Helper()
	ctx = search.WithBudget(ctx)
	found, err := ask(ctx)
	left := 0
	for ; left < 10_000; left++ {
		if _, err := engine.Search(ctx, scope, &search.Request{Now: fleetgen.Epoch}); err != nil {
			break
		}
	}
	return fmt.Sprintf("%v, %v; %d searches are left", found, err, left)
}

// TestRefusalsShowNothingHidden checks that the results and the costs of questions do not depend on the names, labels and
// properties of resources outside of the scope.
func TestRefusalsShowNothingHidden(t *testing.T) {
	engines := []*embedded.Engine{leakEngine(t, "db", "secretType", 5000), leakEngine(t, "cache", "engineType", 4700)}
	for name, scope := range map[string]visibility.Scope{
		"a cluster": visibilitytest.Scope(t, fleetgen.Policy(1, 1, 0), &user.DefaultInfo{Name: fleetgen.User}),
		"nothing":   {},
	} {
		for _, text := range []string{
			"name:db-pass*x", "name:db-pass*", "name:*db-pass*", "name:*db-pass*,*db-pass-1*,db-pass*9", "name:*b-*", "name>db", "name<cache",
			"db-pass", "db", "d", "b-pass-00001-x", "2025", "03:01", "pass db-key",
			"label:db-key", "label:db-key=5", "label:*db*", "label:db*=*5", "label>db", "web label:web-key name:web-pass*7*",
			"secretType:5", "secretType:*", "engineType:*1*", "secretType>1", "replicas:*1*",
			"kind:secret", "kind:s*", "created>2025-01-02T03:20:00Z", "created:month", "cluster:*", "name!=*db-pass*",
		} {
			q := parse(t, text)
			for kind, ask := range map[string]func(search.Engine) func(context.Context) (any, error){
				"search": func(engine search.Engine) func(context.Context) (any, error) {
					return func(ctx context.Context) (any, error) {
						result, err := engine.Search(ctx, scope, &search.Request{Query: q, Now: fleetgen.Epoch})
						if err != nil {
							return nil, err
						}
						return result.Count, nil
					}
				},
				"schema": func(engine search.Engine) func(context.Context) (any, error) {
					return func(ctx context.Context) (any, error) { return engine.Schema(ctx, scope, &q, fleetgen.Epoch) }
				},
			} {
				if got, want := spare(t.Context(), t, engines[0], scope, ask(engines[0])), spare(t.Context(), t, engines[1], scope, ask(engines[1])); got != want {
					t.Errorf("%s %q of a caller who finds %s: %s, but %s if other resources are hidden", kind, text, name, got, want)
				}
			}
		}
		for _, property := range []string{"name", "label", "secretType", "created", "cluster"} {
			var got []string
			for _, engine := range engines {
				got = append(got, spare(t.Context(), t, engine, scope, func(ctx context.Context) (any, error) {
					completion, err := engine.Complete(ctx, scope, &search.CompletionRequest{Property: property, Limit: 4000, Now: fleetgen.Epoch})
					return fmt.Sprintf("%+v", completion), err
				}), spare(t.Context(), t, engine, scope, func(ctx context.Context) (any, error) {
					result, err := engine.Search(ctx, scope, &search.Request{Items: true, Limit: 10, OrderBy: []search.Order{{Property: property}}, Now: fleetgen.Epoch})
					if err != nil {
						return nil, err
					}
					return len(result.Items), nil
				}))
			}
			if diff := cmp.Diff(got[:2], got[2:]); diff != "" {
				t.Errorf("values of and order by %s of a caller who finds %s differ if other resources are hidden: %s", property, name, diff)
			}
		}
	}
}

// TestCostsShowNoSearchesOfOthers checks that a search has the same cost whether or not another caller with the same
// permissions has made it before, and that the searches of one request pay for a keyword once.
func TestCostsShowNoSearchesOfOthers(t *testing.T) {
	engine := leakEngine(t, "db", "secretType", 5000)
	scope := visibilitytest.Scope(t, fleetgen.Policy(1, 1, 0), &user.DefaultInfo{Name: fleetgen.User})
	times := func(n int) func(context.Context) (any, error) {
		return func(ctx context.Context) (found any, err error) {
			for range n {
				result, err := engine.Search(ctx, scope, &search.Request{Query: parse(t, "pass-00017"), Now: fleetgen.Epoch})
				if err != nil {
					return nil, err
				}
				found = result.Count
			}
			return found, nil
		}
	}
	first := spare(as(t.Context(), "alice"), t, engine, scope, times(1))
	for _, caller := range []string{"alice", "bob"} {
		if got := spare(as(t.Context(), caller), t, engine, scope, times(1)); got != first {
			t.Errorf("search of %s after the first one: %s, want %s", caller, got, first)
		}
	}
	if got := spare(as(t.Context(), "bob"), t, engine, scope, times(100)); got[:4] != "1, <" {
		t.Errorf("100 searches with the same keyword in a request: %s, want one result", got)
	}
}

// TestEqualKeywords checks that a query pays once for a keyword that it contains several times.
func TestEqualKeywords(t *testing.T) {
	engine := leakEngine(t, "db", "secretType", 5000)
	times := func(n int) func(context.Context) (any, error) {
		return func(ctx context.Context) (any, error) {
			result, err := engine.Search(ctx, visibility.Everything(), &search.Request{
				Query: query.Query{Keywords: slices.Repeat([]string{"e", "00"}, n)}, Now: fleetgen.Epoch,
			})
			if err != nil {
				return nil, err
			}
			return result.Count, nil
		}
	}
	want := spare(t.Context(), t, engine, visibility.Everything(), times(1))
	if got := spare(t.Context(), t, engine, visibility.Everything(), times(500)); got != want {
		t.Errorf("search for two keywords 500 times: %s, want %s as for one time", got, want)
	}
}

// TestLastValuesCostAsMuch checks that the cost of a page in an order, and of a completion, does not assume that the
// matching resources have the first values.
func TestLastValuesCostAsMuch(t *testing.T) {
	const searches = 60
	engine := leakEngine(t, "db", "secretType", 5000)
	scope := visibilitytest.Scope(t, fleetgen.Policy(1, 1, 0), &user.DefaultInfo{Name: fleetgen.User})
	for name, ask := range map[string]func(context.Context) error{
		"order": func(ctx context.Context) error {
			_, err := engine.Search(ctx, scope, &search.Request{Items: true, Limit: 1, OrderBy: []search.Order{{Property: query.Name}}, Now: fleetgen.Epoch})
			return err
		},
		"completion": func(ctx context.Context) error {
			_, err := engine.Complete(ctx, scope, &search.CompletionRequest{Property: query.Name, Limit: 1, Now: fleetgen.Epoch})
			return err
		},
	} {
		ctx, failed := search.WithBudget(t.Context()), 0
		for range searches {
			if ask(ctx) != nil {
				failed++
			}
		}
		// The names of the fleet cost half a millisecond of 20.
		if failed < searches/4 || failed > searches/2 {
			t.Errorf("%d of %d requests with the property %s were refused, want those after about 40", failed, searches, name)
		}
	}
}
