package rbac

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"open-cluster-management.io/hub-apiserver/test/seed"
)

// grade represents the rules of a role in tests. Two grades with the same number are equal.
type grade struct{ n int }

func (g *grade) Equal(other *grade) bool { return g.n == other.n }

func TestIndexChanges(t *testing.T) {
	t.Parallel()
	role, other := Key{"Role", "a", "r"}, Key{"ClusterRole", "", "r"}
	name := Key{"RoleBinding", "a", "b"}
	binding := &Binding{Role: role, Subjects: []Subject{user("anna"), group("team")}}
	x := NewIndex[*grade]()

	if changes, changed := x.SetRole(role, &grade{1}); !changed || len(changes) != 0 {
		t.Errorf("SetRole(unbound role) = %v, %t, want no changes, true", changes, changed)
	}
	if _, changed := x.SetRole(role, &grade{1}); changed {
		t.Error("SetRole(equal rules) = changed, want unchanged")
	}
	if _, changed := x.SetRole(other, nil); changed {
		t.Error("SetRole(unknown role, nil) = changed, want unchanged")
	}
	if change, changed := x.SetBinding(name, binding); !changed || change.Namespace != "a" || change.Before.Rules != nil || change.After.Rules.n != 1 ||
		!change.After.Includes([]Subject{user("x"), group("team")}) || change.After.Includes([]Subject{group("anna")}) {
		t.Errorf("SetBinding(new) = %v, %t, want a change to the rules of the role for anna and team", change, changed)
	}
	if _, changed := x.SetBinding(name, &Binding{Role: role, Subjects: slices.Clone(binding.Subjects)}); changed {
		t.Error("SetBinding(equal binding) = changed, want unchanged")
	}
	changes, changed := x.SetRole(role, &grade{2})
	if !changed || len(changes) != 1 || changes[0].Before.Rules.n != 1 || changes[0].After.Rules.n != 2 || !changes[0].Before.Includes([]Subject{user("anna")}) {
		t.Errorf("SetRole(other rules) = %v, %t, want one change from 1 to 2 for anna", changes, changed)
	}
	if got := x.BoundTo(role); !slices.Equal(got, binding.Subjects) {
		t.Errorf("BoundTo(role) = %v, want %v", got, binding.Subjects)
	}
	if change, changed := x.SetBinding(name, &Binding{Role: other, Subjects: []Subject{user("anna")}}); !changed || change.Before.Rules.n != 2 || change.After.Rules != nil {
		t.Errorf("SetBinding(to an unknown role) = %v, %t, want a change from 2 to nothing", change, changed)
	}
	if got := x.BoundTo(role); got != nil {
		t.Errorf("BoundTo(role without bindings) = %v, want none", got)
	}
	if _, changed := x.SetBinding(name, nil); !changed {
		t.Error("SetBinding(known, nil) = unchanged, want changed")
	}
	if _, changed := x.SetBinding(name, nil); changed {
		t.Error("SetBinding(unknown, nil) = changed, want unchanged")
	}
	if subjects := slices.Collect(x.Subjects()); len(subjects) != 0 || len(x.byRole) != 0 {
		t.Errorf("Subjects() of an Index without bindings = %v, want none", subjects)
	}
}

// After random updates, an Index finds the same bindings as a search of all its bindings.
func TestIndexFindsTheSameAsASearch(t *testing.T) {
	t.Parallel()
	random := seed.Rand(t)
	x := NewIndex[*grade]()
	all := map[Key]*Binding{}
	subjects := []Subject{user("a"), user("b"), group("a"), group("b")}
	for range 3000 {
		key := Key{KindRoleBinding, fmt.Sprint("n", random.IntN(3)), fmt.Sprint("b", random.IntN(4))}
		if random.IntN(3) == 0 {
			x.SetBinding(key, nil)
			delete(all, key)
		} else {
			b := &Binding{Role: Key{KindClusterRole, "", fmt.Sprint("r", random.IntN(3))}}
			for _, s := range subjects {
				if random.IntN(2) == 0 {
					b.Subjects = append(b.Subjects, s)
				}
			}
			x.SetBinding(key, b)
			all[key] = b
		}
		var of []Subject
		for _, s := range subjects {
			if random.IntN(2) == 0 {
				of = append(of, s)
			}
		}
		want := map[Key]*Binding{}
		for key, b := range all {
			if (Grant[*grade]{Subjects: b.Subjects}).Includes(of) {
				want[key] = b
			}
		}
		got := map[Key]*Binding{}
		for key, b := range x.BindingsOf(of) {
			if got[key] != nil {
				t.Fatalf("BindingsOf(%v) contains %v twice, want it once", of, key)
			}
			got[key] = b
		}
		equal := func(a, b *Binding) bool { return a.Role == b.Role && slices.Equal(a.Subjects, b.Subjects) }
		if !maps.EqualFunc(got, want, equal) {
			t.Fatalf("BindingsOf(%v) = %v, want %v", of, got, want)
		}
	}
}
