package differential_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// count records the result of a ManifestWork for which agent and cluster agree.
func (s *subject) count(c *triple, fates []fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.triples++
	if !c.judged {
		return
	}
	if c.admitted {
		s.admitted++
	}
	passes := true
	causes := map[string]bool{}
	if c.byName {
		causes[escalateByName] = true
	}
	for i, m := range c.manifests {
		if lacking := forbidden(fates[i], m.sent()); len(lacking) > 0 {
			passes = false
			if c.admitted {
				s.wrong = append(s.wrong, fmt.Sprintf("wrong allow: %s as %s: %s", c, s.name, strings.Join(lacking, "; ")))
			}
		}
		for _, verb := range m.wanted() {
			if fates[i][verb] != "" && !slices.Contains(m.sent(), verb) {
				causes[fmt.Sprintf("%s under %s", verb, m.target.Strategy)] = true
			}
		}
	}
	if passes && !c.admitted {
		s.wrongDenies[strings.Join(slices.Sorted(maps.Keys(causes)), ", ")]++
	}
}

// report logs the counts, and fails the test if a decision is wrong without an accepted cause, or
// if the triples are too uniform.
func (d *differential) report(t *testing.T, took time.Duration) {
	t.Helper()
	for _, wrong := range d.wrong {
		t.Error(wrong)
	}
	t.Logf("%d triples in %s: %d admitted, %d decisions reversed by a policy change; %d decisions required %d SubjectAccessReviews",
		d.triples, took.Round(time.Second), d.admitted, d.flips, d.decisions, d.reviews.Load())
	wrongDenies := 0
	for _, count := range d.wrongDenies {
		wrongDenies += count
	}
	t.Logf("%d wrong denies", wrongDenies)
	for _, cause := range slices.SortedFunc(maps.Keys(d.wrongDenies), func(a, b string) int { return cmp.Compare(d.wrongDenies[b], d.wrongDenies[a]) }) {
		t.Logf("%6d %s", d.wrongDenies[cause], cause)
		for _, each := range strings.Split(cause, ", ") {
			if costs[each] == "" {
				t.Errorf("%d ManifestWorks denied without an accepted cause: %q, want none", d.wrongDenies[cause], each)
			}
		}
	}
	if d.admitted*10 < d.triples || d.admitted*10 > 9*d.triples || d.flips == 0 {
		t.Errorf("%d of %d triples admitted, %d decisions reversed, want 10 to 90 %% admitted and at least one reversed", d.admitted, d.triples, d.flips)
	}
}

const escalateByName = "escalate by name under Update"

// costs lists the accepted causes of a denial of a ManifestWork whose requests would pass, each
// with its reason.
var costs = map[string]string{
	escalateByName:                 "The agent checks escalation once, for the creation and for the update of a role. A request to create a role has no name, so escalate on the name of the role does not allow it. The executor must then hold all rules that the role grants or aggregates, even if only the update exceeds its permissions.",
	"patch under Update":           "The upstream proposal requires patch. The strategy Update sends no patch. Hardly any role grants update without patch, because update allows the same changes.",
	"update under Update":          "If the roleRef of a binding changes, the agent deletes and creates the binding. Later, the agent updates it like any other object.",
	"update under ServerSideApply": "The upstream proposal requires update. If an object is deleted with the ManifestWork, the agent only patches it. If the ManifestWork changes later and keeps the object, the agent removes the owner reference with an update.",
	"delete under Update":          "The upstream proposal requires delete. The agent deletes the objects as itself without a check, so it checks the permission before it applies them.",
	"delete under CreateOnly":      "Same reason as for delete under Update.",
	"delete under ServerSideApply": "Same reason as for delete under Update.",
}
