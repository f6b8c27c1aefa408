package rbac

import (
	"iter"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
)

// Grant contains the rules that a binding grants to its subjects. Its zero value grants
// nothing.
type Grant[R any] struct {
	Subjects []Subject
	Rules    R
}

// Includes reports whether any of the subjects receives the rules.
func (g Grant[R]) Includes(subjects []Subject) bool {
	return slices.ContainsFunc(subjects, func(s Subject) bool { return includes(g.Subjects, s) })
}

func includes(sorted []Subject, s Subject) bool {
	_, found := slices.BinarySearchFunc(sorted, s, Subject.compare)
	return found
}

// Change is the effect of an update on one binding.
type Change[R any] struct {
	// Namespace is the namespace of the binding. It is empty for a ClusterRoleBinding.
	Namespace     string
	Before, After Grant[R]
}

// Rules is the rules of a role in the form in which an Index stores them. The zero
// value means that there is no such role.
type Rules[R any] interface {
	comparable
	// Equal reports whether both contain the same rules. Neither is the zero value.
	Equal(R) bool
}

// Index finds the rules of subjects through their bindings. Bindings may refer to
// roles that are not in the Index. Callers synchronize access.
type Index[R Rules[R]] struct {
	roles     map[Key]R
	bindings  map[Key]*Binding
	bySubject map[Subject]sets.Set[Key]
	byRole    map[Key]sets.Set[Key]
}

// NewIndex returns an empty Index.
func NewIndex[R Rules[R]]() *Index[R] {
	return &Index[R]{
		roles: map[Key]R{}, bindings: map[Key]*Binding{},
		bySubject: map[Subject]sets.Set[Key]{}, byRole: map[Key]sets.Set[Key]{},
	}
}

// SetRole stores the rules of a role; the zero value removes the role. It returns one
// change for each binding to the role, and whether the rules differ from before.
func (x *Index[R]) SetRole(key Key, rules R) (changes []Change[R], changed bool) {
	var none R
	before := x.roles[key]
	if before == rules || before != none && rules != none && before.Equal(rules) {
		return nil, false
	}
	if rules == none {
		delete(x.roles, key)
	} else {
		x.roles[key] = rules
	}
	for name := range x.byRole[key] {
		subjects := x.bindings[name].Subjects
		changes = append(changes, Change[R]{
			Namespace: name.Namespace, Before: Grant[R]{subjects, before}, After: Grant[R]{subjects, rules},
		})
	}
	return changes, true
}

// SetBinding stores a binding, or removes it if now is nil. It returns the change, and
// whether the binding differs from before.
func (x *Index[R]) SetBinding(key Key, now *Binding) (change Change[R], changed bool) {
	before := x.bindings[key]
	if before == now || before != nil && now != nil && before.Role == now.Role && slices.Equal(before.Subjects, now.Subjects) {
		return Change[R]{}, false
	}
	change.Namespace = key.Namespace
	if before != nil {
		change.Before = Grant[R]{before.Subjects, x.roles[before.Role]}
		for _, s := range before.Subjects {
			remove(x.bySubject, s, key)
		}
		remove(x.byRole, before.Role, key)
		delete(x.bindings, key)
	}
	if now != nil {
		change.After = Grant[R]{now.Subjects, x.roles[now.Role]}
		for _, s := range now.Subjects {
			insert(x.bySubject, s, key)
		}
		insert(x.byRole, now.Role, key)
		x.bindings[key] = now
	}
	return change, true
}

// Role returns the rules of a role, or the zero value if there is no such role.
func (x *Index[R]) Role(key Key) R { return x.roles[key] }

// Roles returns the keys of all roles.
func (x *Index[R]) Roles() iter.Seq[Key] { return maps.Keys(x.roles) }

// Bindings returns the keys of all bindings.
func (x *Index[R]) Bindings() iter.Seq[Key] { return maps.Keys(x.bindings) }

// Subjects returns all subjects of bindings.
func (x *Index[R]) Subjects() iter.Seq[Subject] { return maps.Keys(x.bySubject) }

// BoundTo returns the subjects of all bindings to a role; they may repeat.
func (x *Index[R]) BoundTo(role Key) []Subject {
	var subjects []Subject
	for key := range x.byRole[role] {
		subjects = append(subjects, x.bindings[key].Subjects...)
	}
	return subjects
}

// BindingsOf returns the bindings that include any of the subjects, each once.
func (x *Index[R]) BindingsOf(subjects []Subject) iter.Seq2[Key, *Binding] {
	return func(yield func(Key, *Binding) bool) {
		for i, s := range subjects {
			for key := range x.bySubject[s] {
				b := x.bindings[key]
				known := func(other Subject) bool { return includes(b.Subjects, other) }
				if !slices.ContainsFunc(subjects[:i], known) && !yield(key, b) {
					return
				}
			}
		}
	}
}

func insert[K comparable](index map[K]sets.Set[Key], at K, key Key) {
	if index[at] == nil {
		index[at] = sets.New[Key]()
	}
	index[at].Insert(key)
}

func remove[K comparable](index map[K]sets.Set[Key], at K, key Key) {
	if index[at].Delete(key); len(index[at]) == 0 {
		delete(index, at)
	}
}
