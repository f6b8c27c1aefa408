package hostile

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/seed"
)

const (
	// classSize is the size of the input of each class.
	classSize = 20
	// atOnce is the number of inputs that are sent concurrently.
	atOnce = 8
)

// doubled returns a list that contains one list of 2^n items.
func doubled(n int) string {
	return "[[1]]" + strings.Repeat(".map(x, x + x)", n)
}

// rule returns a ManifestWork with an expression in a condition rule.
func rule(expression string) Input {
	return configuredWith(fields{"conditionRules": []any{fields{"condition": "Hostile", "type": "CEL", "celExpressions": []string{expression}}}}, "Hostile")
}

// without returns a ManifestWork that is applied without the fields that an expression selects.
func without(kind string, expression string) Input {
	return configuredWith(fields{"updateStrategy": fields{"type": "ServerSideApply", "serverSideApply": fields{"force": true, "ignoreFields": []any{fields{"condition": "OnSpokePresent", kind: []string{expression}}}}}})
}

// small returns a source for inputs of the smallest size.
func small() *Gen { return Case{Class: &Class{}, Size: 1}.gen() }

func configuredWith(config fields, reported ...string) Input {
	return configured(small(), config, reported...)
}

// corpus contains inputs with a known outcome. The response must contain path, which is the field
// that a rejection names.
var corpus = []struct {
	name    string
	input   Input
	outcome Outcome
	path    string
}{
	{"CEL over the object", rule("object.data.n == '1' && object.data.all(k, k != '')"), Answered, ""},
	{"CEL of types that double", rule("[1]" + strings.Repeat(".map(x, {'a': x, 'b': x})", 30) + ".size() > 0"), Refused, "celExpressions[0]"},
	{"CEL of nested maps", rule(nest(small(), 24, "true", "{'a': 1}.all(#, %)")), Refused, "celExpressions[0]"},
	{"CEL in a list of 2^48", rule(doubled(48) + ".exists(x, 2 in x)"), Refused, "celExpressions[0]"},
	{"CEL of equal lists of 2^48", rule("[" + doubled(48) + "].all(x, x == x)"), Refused, "celExpressions[0]"},
	{"CEL with a macro that copies", rule("optional.of(1)" + strings.Repeat(".optMap(x, x + 1)", 30) + ".hasValue()"), Refused, "celExpressions[0]"},
	{"jq of paths", without("jqPathExpressions", `.data | select(.n == "1") | .k`), Answered, ""},
	{"jq that repeats text", without("jqPathExpressions", `.data[("a" * 1000000000) | tostring]`), Refused, "jqPathExpressions[0]"},
	{"jq that never ends", without("jqPathExpressions", `def f: f; f`), Refused, "jqPathExpressions[0]"},
	{"JSON path", without("jsonPaths", ".data.k"), Answered, ""},
	{"nested report", Input{Requests: []Request{reporting(added(1, func(int) string { return resourceJSON(1, `,"p":`+strings.Repeat("[", 1_000_000)) }))}}, Refused, "exceeded max depth"},
	{"nested GraphQL", graphQL(strings.Repeat("{ search ", 10_000), nil), Refused, "nesting depth"},
	{"GraphQL of many selections", graphQL("{"+each(5_000, " ", func(i int) string { return fmt.Sprintf("a%d: messages { id }", i) })+"}", nil), Refused, "the maximum is 20000"},
	{"search for many values", searching("/searches", "Search", fields{"keywords": slices.Repeat([]string{"a"}, 5_000)}), Refused, "spec"},
	{"nested manifest", manifests(small(), configMapJSON(object, "", `,"x":`+strings.Repeat("[", 20_000)+strings.Repeat("]", 20_000))), Refused, "levels deep"},
}

// TestCorpus sends the inputs with a known outcome, and one input of every class, which must be
// refused, or evaluated and reported. Afterwards, the server and the agent must still handle usual
// inputs. TestCorpus does not measure the cost of inputs; make hostile does.
func TestCorpus(t *testing.T) {
	framework.Slots(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), await.Scaled(20*time.Minute))
	defer cancel()
	site := framework.Must(NewSite(ctx, t.TempDir()))(t)
	framework.KillLater(t, site.Stop)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, c := range corpus {
		group.Go(func() error {
			verdict, err := site.Try(ctx, c.input.Named(fmt.Sprintf("corpus-%d", i)))
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if verdict.Outcome != c.outcome || len(verdict.Over) > 0 || !strings.Contains(verdict.Message, c.path) {
				t.Errorf("Try(%s) = %s %q %s, want %s with %q", c.name, verdict.Outcome, verdict.Over, cut(verdict.Message, 500), c.outcome, c.path)
			}
			return nil
		})
	}
	classes, chosen := Classes(), seed.Of(t)
	for i := range classes {
		group.Go(func() error {
			c := Case{Class: &classes[i], Size: classSize, Seed: chosen}
			verdict, err := site.Try(ctx, c.Input().Named(fmt.Sprintf("class-%d", i)))
			if err != nil {
				return fmt.Errorf("%s: %w", c, err)
			}
			if verdict.Outcome == Failed || len(verdict.Over) > 0 {
				t.Errorf("Try(%s) = %s %q, want refused, or answered and reported", c, verdict.Outcome, verdict.Over)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for i, input := range usual() {
		verdict := framework.Must(site.Try(t.Context(), input))(t)
		if verdict.Outcome != Answered || len(verdict.Over) > 0 {
			t.Errorf("Try(usual input %d) afterwards = %s %q %s, want %s", i, verdict.Outcome, verdict.Over, cut(verdict.Message, 300), Answered)
		}
	}
}
