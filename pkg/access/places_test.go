package access

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// places returns where roles are bound to a subject on the clusters of a fleet, by a plain loop.
func places(fleet map[string]*model, clusters []string, s Subject, wanted func(rbac.Key) bool) map[string][]Place {
	found := map[string][]Place{}
	for _, cluster := range clusters {
		m := fleet[cluster]
		if m == nil || !m.state.Known {
			continue
		}
		everywhere, namespaces := map[string]bool{}, map[string]map[string]bool{}
		for key, b := range m.bindings {
			role, bound := roleBoundTo(key, b, s)
			if _, exists := m.roles[role]; !bound || !exists || !wanted(role) {
				continue
			}
			if namespaces[role.Name] == nil {
				namespaces[role.Name] = map[string]bool{}
			}
			namespaces[role.Name][key.Namespace] = true
			everywhere[role.Name] = everywhere[role.Name] || key.Namespace == ""
		}
		for role, in := range namespaces {
			place := Place{Cluster: cluster}
			if !everywhere[role] {
				place.Namespaces = slices.Sorted(maps.Keys(in))
			}
			found[role] = append(found[role], place)
		}
	}
	return found
}

// follower follows what a subject holds, as a watch does.
type follower struct {
	index    *Index
	subject  Subject
	clusters []string
	touched  <-chan struct{}
	places   map[string][]Place
	allowed  map[string]struct{}
}

// changesOf returns the interests in the changes of an index.
func changesOf(x *Index) *rbac.Interests {
	interests := &rbac.Interests{}
	x.Follow(func(_ string, _ bool, concerned []rbac.Subject) { interests.Touch(concerned) })
	return interests
}

// newFollowers returns a follower of each user and each group.
func newFollowers(x *Index, clusters []string) []*follower {
	var followers []*follower
	interests := changesOf(x)
	add := func(s Subject) {
		_, touched := interests.Subscribe(s.Subjects())
		followers = append(followers, &follower{index: x, subject: s, clusters: clusters, touched: touched, places: map[string][]Place{}})
	}
	for _, name := range someUsers {
		add(Subject{User: name})
	}
	for _, name := range someGroupsOf {
		add(Subject{Groups: []string{name}})
	}
	return followers
}

var followed = Attributes{Verb: "get", Resource: "pods"}

// check compares what a subject holds with a plain loop, and that it has not changed without a notification.
func (f *follower) check(t *testing.T, fleet map[string]*model) {
	t.Helper()
	wanted := func(role rbac.Key) bool { return role.Kind == rbac.KindClusterRole || role.Name != "a" }
	got := f.index.Places(f.subject, f.clusters, wanted, 100)
	if want := places(fleet, f.clusters, f.subject, wanted); !reflect.DeepEqual(got, want) {
		t.Errorf("Places(%v) = %v, want %v", f.subject, got, want)
	}
	cluster := f.clusters[0]
	allowed, everywhere := f.index.Namespaces(f.subject, followed, cluster)
	if everywhere {
		allowed = map[string]struct{}{"": {}}
	}
	m := fleet[cluster]
	for _, namespace := range append(someNamespaces, "") {
		a := followed
		a.Namespace = namespace
		_, got := allowed[namespace]
		if want := m != nil && m.state.Known && len(m.allows(f.subject, a)) > 0; (got || everywhere) != want {
			t.Errorf("Namespaces(%v) = %v, contains %q = %t, want %t", f.subject, allowed, namespace, got, want)
		}
	}
	notified := false
	select {
	case <-f.touched:
		notified = true
	default:
	}
	if changed := !reflect.DeepEqual(got, f.places) || !maps.Equal(allowed, f.allowed); changed && !notified {
		t.Errorf("what %v holds has changed from %v, %v to %v, %v without a notification", f.subject, f.places, f.allowed, got, allowed)
	}
	f.places, f.allowed = got, allowed
}

func TestPlacesAreBounded(t *testing.T) {
	u := newUpdate()
	u.Roles[clusterRole("view")], u.Roles[clusterRole("edit")] = nil, nil
	for i := range 9 {
		u.bind(fmt.Sprintf("ns-%d", i), "one", "view", "alice")
		u.bind(fmt.Sprintf("ns-%d", i), "two", "view", "group:devs")
	}
	u.bind("", "edit", "edit", "group:devs")
	u.bind("ns-0", "edit", "edit", "alice")
	x := newIndex(t, map[string]*Update{"a": u, "b": u})
	got := x.Places(Subject{User: "alice", Groups: []string{"devs"}}, []string{"missing", "b", "a"}, func(rbac.Key) bool { return true }, 3)
	three := []string{"ns-0", "ns-1", "ns-2"}
	want := map[string][]Place{"view": {{"b", three}, {"a", three}}, "edit": {{"b", nil}, {"a", nil}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Places = %v, want %v", got, want)
	}
	if got := x.Places(Subject{User: "bob"}, []string{"a"}, func(rbac.Key) bool { return true }, 3); len(got) != 0 {
		t.Errorf("Places(bob) = %v, want none", got)
	}
}

// TestUnconcernedAreNotNotified checks that a change does not notify those whose permissions it cannot change, so that
// one cluster does not keep the watches of all callers busy.
func TestUnconcernedAreNotNotified(t *testing.T) {
	u := newUpdate()
	u.Roles[clusterRole("view")] = rules("get", "", "pods")
	u.bind("ns", "bob", "view", "bob")
	x := newIndex(t, map[string]*Update{"one": u})
	interests := changesOf(x)
	alice, touched := interests.Subscribe(SubjectFor("alice", nil).Subjects())
	unconcerned := func(what string) {
		t.Helper()
		select {
		case <-touched:
			t.Errorf("%s notifies alice, who is not concerned", what)
		default:
		}
	}
	x.Update("one", u)
	unconcerned("a report without changes")
	x.SetState("one", State{Known: true})
	unconcerned("a state without change")
	x.SetState("one", State{Reason: "silent"})
	unconcerned("the state of a cluster without bindings of alice")
	x.SetState("one", State{Known: true})
	more := newUpdate()
	more.Full = false
	more.bind("ns", "bob-2", "view", "bob")
	x.Update("one", more)
	unconcerned("a binding of bob")
	more.bind("ns", "alice", "view", "alice")
	x.Update("one", more)
	select {
	case <-touched:
	default:
		t.Error("a binding of alice does not notify alice")
	}
	interests.Remove(alice)
	x.Remove("one")
	unconcerned("a change after the end of the subscription")
}
