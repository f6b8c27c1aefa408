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

// count notes what a work on which both agree came to.
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

// report prints the figures, and fails for what is wrong.
func (d *differential) report(t *testing.T, took time.Duration) {
	t.Helper()
	for _, wrong := range d.wrong {
		t.Error(wrong)
	}
	t.Logf("%d triples in %s: %d admitted, %d came to be so or not by a change of policy; %d decisions took %d SubjectAccessReviews",
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
				t.Errorf("%d works are refused for a cause that nothing justifies: %q", d.wrongDenies[cause], each)
			}
		}
	}
	if d.admitted*10 < d.triples || d.admitted*10 > 9*d.triples || d.flips == 0 {
		t.Error("the policies decide next to nothing")
	}
}

const escalateByName = "escalate by name under Update"

// costs are the causes for which a work is refused although its requests would
// pass, each with what is won by it.
var costs = map[string]string{
	escalateByName:                 "Escalation is judged once, for creating a role and for updating it. An executor that may escalate one role by its name, but no role that has no name yet, must hold what the role grants, or collects, also where only the update goes beyond what it holds.",
	"patch under Update":           "The seed wants it. Update replaces objects and patches none; whoever may update an object may do by that what a patch does, so next to no role has one verb without the other.",
	"update under Update":          "A binding whose roleRef changes is deleted and created. Once it is as given, it is updated like any other object.",
	"update under ServerSideApply": "The seed wants it. An object that is removed with the work is only patched; that it is not, which takes an update, may be said later.",
	"delete under Update":          "The seed wants it: the agent removes the objects itself and does not ask then, so it asks before it applies them.",
	"delete under CreateOnly":      "As under Update.",
	"delete under ServerSideApply": "As under Update.",
}
