package accountsync

import (
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

func secretRules(names ...string) []rbacv1.PolicyRule {
	rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"}}}
	if len(names) > 0 {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}, ResourceNames: names})
	}
	return rules
}

// A Role of many names is written now and then, but never later when it gives too much.
func TestPause(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	a := &Access{clock: clock, written: map[string]time.Time{}}
	const cluster = "cluster1"
	more := secretRules("a", "b", "c")
	if left := a.pause(cluster, secretRules("a"), more); left != 0 {
		t.Errorf("the first write waits for %s", left)
	}
	if left := a.pause(cluster, secretRules("a"), more); left != 3*pausePerName {
		t.Errorf("the next waits for %s, not %s", left, 3*pausePerName)
	}
	if left := a.pause("cluster2", secretRules(), more); left != 0 {
		t.Errorf("that of another cluster waits for %s", left)
	}
	wide := secretRules("a")
	wide[1].Verbs = []string{"*"}
	for name, present := range map[string][]rbacv1.PolicyRule{
		"a name too much":  secretRules("a", "foreign"),
		"a verb too much":  wide,
		"a rule too much":  append(secretRules("a"), rbacv1.PolicyRule{Verbs: []string{"*"}}),
		"no name is right": secretRules("foreign"),
	} {
		if left := a.pause(cluster, present, more); left != 0 {
			t.Errorf("%s: it waits for %s", name, left)
		}
	}
	clock.SetTime(clock.Now().Add(3 * pausePerName))
	if left := a.pause(cluster, secretRules("a"), more); left != 0 {
		t.Errorf("after the pause it waits for %s", left)
	}
}
