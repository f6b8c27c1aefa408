package differential_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedrbacv1 "k8s.io/client-go/kubernetes/typed/rbac/v1"
)

// world contains the names that the policies and ManifestWorks of one executor use. Executors
// share no names, so each has its own policy.
type world struct {
	rng *rand.Rand
	// id is the prefix of every name.
	id string
	// namespaces are the existing namespaces. The namespace of the executor may be another one.
	namespaces []string
	// executorNamespace and executorName identify the executor.
	executorNamespace, executorName string
	// names are the names of objects.
	names []string
}

func newWorld(seed uint64, number int) *world {
	id := fmt.Sprintf("d%d", number)
	w := &world{
		rng: rand.New(rand.NewPCG(seed, uint64(number))), id: id, namespaces: []string{id + "-a", id + "-b"},
		executorNamespace: id + "-a", executorName: "robot", names: []string{id + "-x", id + "-y", id + "-z"},
	}
	if number%3 == 0 {
		// The namespace and the ServiceAccount of an executor do not have to exist.
		w.executorNamespace = id + "-nowhere"
	}
	return w
}

// chance returns true in the given percentage of cases.
func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

func pick[T any](w *world, list []T) T { return list[w.rng.IntN(len(list))] }

// some returns least to most random items of a list, possibly with duplicates.
func (w *world) some(list []string, least, most int) []string {
	var picked []string
	for range least + w.rng.IntN(most-least+1) {
		picked = append(picked, pick(w, list))
	}
	return picked
}

// policy contains the RBAC objects of one executor on the cluster.
type policy struct {
	*world
	rbac typedrbacv1.RbacV1Interface

	roles           map[string]*rbacv1.Role
	clusterRoles    map[string]*rbacv1.ClusterRole
	bindings        map[string]*rbacv1.RoleBinding
	clusterBindings map[string]*rbacv1.ClusterRoleBinding
	// touched contains the kinds that have changed since the policy was last settled.
	touched map[string]bool
	// step counts the settled policies.
	step int
}

func newPolicy(w *world, rbac typedrbacv1.RbacV1Interface) *policy {
	return &policy{
		world: w, rbac: rbac, touched: map[string]bool{},
		roles: map[string]*rbacv1.Role{}, clusterRoles: map[string]*rbacv1.ClusterRole{},
		bindings: map[string]*rbacv1.RoleBinding{}, clusterBindings: map[string]*rbacv1.ClusterRoleBinding{},
	}
}

const (
	rolesPerNamespace = 2
	clusterRoleCount  = 4
	bindingCount      = 5
	clusterBindings   = 3
	// sources is the number of ClusterRoles that can be aggregated.
	sources = 2
)

func (p *policy) aggregate() string      { return p.id + "-aggregate" }
func (p *policy) aggregateLabel() string { return "differential.example.com/" + p.id }
func (p *policy) wide() string           { return p.id + "-wide" }

// change makes one random change.
func (p *policy) change(ctx context.Context) error {
	switch p.rng.IntN(10) {
	case 0, 1:
		return p.putRole(ctx, pick(p.world, p.namespaces), fmt.Sprintf("%s-role-%d", p.id, p.rng.IntN(rolesPerNamespace)))
	case 2, 3:
		return p.putClusterRole(ctx, p.rng.IntN(clusterRoleCount))
	case 4:
		return p.remove(ctx)
	case 5:
		return p.putWide(ctx)
	case 6, 7:
		return p.putClusterBinding(ctx, fmt.Sprintf("%s-binding-%d", p.id, p.rng.IntN(clusterBindings)))
	default:
		n := p.rng.IntN(bindingCount)
		return p.putBinding(ctx, p.namespaces[n%len(p.namespaces)], fmt.Sprintf("%s-binding-%d", p.id, n))
	}
}

// fill creates the first policy.
func (p *policy) fill(ctx context.Context) error {
	if err := p.putAggregate(ctx); err != nil {
		return err
	}
	for range 24 {
		if err := p.change(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (p *policy) putRole(ctx context.Context, namespace, name string) error {
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: p.rules(false)}
	key := namespace + "/" + name
	p.touched["Role"] = true
	if err := put(ctx, p.roles[key] != nil, role, p.rbac.Roles(namespace).Create, p.rbac.Roles(namespace).Update); err != nil {
		return err
	}
	p.roles[key] = role
	return nil
}

func (p *policy) putClusterRole(ctx context.Context, number int) error {
	name := fmt.Sprintf("%s-role-%d", p.id, number)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: p.rules(true)}
	if number < sources && p.chance(70) {
		role.Labels = map[string]string{p.aggregateLabel(): ""}
	}
	return p.storeClusterRole(ctx, role)
}

func (p *policy) storeClusterRole(ctx context.Context, role *rbacv1.ClusterRole) error {
	p.touched["ClusterRole"] = true
	if err := put(ctx, p.clusterRoles[role.Name] != nil, role, p.rbac.ClusterRoles().Create, p.rbac.ClusterRoles().Update); err != nil {
		return err
	}
	p.clusterRoles[role.Name] = role
	return nil
}

func (p *policy) putAggregate(ctx context.Context) error {
	return p.storeClusterRole(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: p.aggregate()},
		AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{
			{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: p.aggregateLabel(), Operator: metav1.LabelSelectorOpExists}}},
		}},
	})
}

// putWide binds a role to a group that includes other executors. Its rules name objects of this
// world, so they do not affect other executors.
func (p *policy) putWide(ctx context.Context) error {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: p.wide()}}
	for range 1 + p.rng.IntN(2) {
		rule := p.rule()
		rule.ResourceNames = p.some(p.names, 1, 2)
		role.Rules = append(role.Rules, rule)
	}
	if err := p.storeClusterRole(ctx, role); err != nil {
		return err
	}
	group := pick(p.world, []string{"system:authenticated", "system:serviceaccounts", "system:unauthenticated"})
	return p.storeClusterBinding(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: p.wide()}, RoleRef: clusterRoleRef(p.wide()),
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}},
	})
}

func (p *policy) putBinding(ctx context.Context, namespace, name string) error {
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Subjects: p.subjects(namespace)}
	key, client := namespace+"/"+name, p.rbac.RoleBindings(namespace)
	former := p.bindings[key]
	if former != nil && p.chance(50) {
		binding.RoleRef = former.RoleRef
	} else {
		switch p.rng.IntN(8) {
		case 0:
			binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "missing"}
		case 1:
			binding.RoleRef = clusterRoleRef(p.aggregate())
		case 2, 3, 4:
			binding.RoleRef = clusterRoleRef(fmt.Sprintf("%s-role-%d", p.id, p.rng.IntN(clusterRoleCount)))
		default:
			binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: fmt.Sprintf("%s-role-%d", p.id, p.rng.IntN(rolesPerNamespace))}
		}
	}
	p.touched["RoleBinding"] = true
	exists := former != nil
	if exists && former.RoleRef != binding.RoleRef {
		if err := client.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		exists = false
	}
	if err := put(ctx, exists, binding, client.Create, client.Update); err != nil {
		return err
	}
	p.bindings[key] = binding
	return nil
}

func (p *policy) putClusterBinding(ctx context.Context, name string) error {
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: p.subjects("")}
	switch former := p.clusterBindings[name]; {
	case former != nil && p.chance(50):
		binding.RoleRef = former.RoleRef
	case p.chance(20):
		binding.RoleRef = clusterRoleRef(p.aggregate())
	case p.chance(10):
		binding.RoleRef = clusterRoleRef(p.id + "-missing")
	default:
		binding.RoleRef = clusterRoleRef(fmt.Sprintf("%s-role-%d", p.id, p.rng.IntN(clusterRoleCount)))
	}
	return p.storeClusterBinding(ctx, binding)
}

func (p *policy) storeClusterBinding(ctx context.Context, binding *rbacv1.ClusterRoleBinding) error {
	client, former := p.rbac.ClusterRoleBindings(), p.clusterBindings[binding.Name]
	p.touched["ClusterRoleBinding"] = true
	exists := former != nil
	if exists && former.RoleRef != binding.RoleRef {
		if err := client.Delete(ctx, binding.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		exists = false
	}
	if err := put(ctx, exists, binding, client.Create, client.Update); err != nil {
		return err
	}
	p.clusterBindings[binding.Name] = binding
	return nil
}

// remove deletes a random object, which revokes its permissions.
func (p *policy) remove(ctx context.Context) error {
	switch p.rng.IntN(4) {
	case 0:
		return drop(p, "Role", p.roles, func(role *rbacv1.Role) error {
			return p.rbac.Roles(role.Namespace).Delete(ctx, role.Name, metav1.DeleteOptions{})
		})
	case 1:
		if err := drop(p, "ClusterRole", p.clusterRoles, func(role *rbacv1.ClusterRole) error {
			return p.rbac.ClusterRoles().Delete(ctx, role.Name, metav1.DeleteOptions{})
		}); err != nil || p.clusterRoles[p.aggregate()] != nil {
			return err
		}
		return p.putAggregate(ctx)
	case 2:
		return drop(p, "RoleBinding", p.bindings, func(binding *rbacv1.RoleBinding) error {
			return p.rbac.RoleBindings(binding.Namespace).Delete(ctx, binding.Name, metav1.DeleteOptions{})
		})
	default:
		return drop(p, "ClusterRoleBinding", p.clusterBindings, func(binding *rbacv1.ClusterRoleBinding) error {
			return p.rbac.ClusterRoleBindings().Delete(ctx, binding.Name, metav1.DeleteOptions{})
		})
	}
}

func drop[T any](p *policy, kind string, objects map[string]T, remove func(T) error) error {
	if len(objects) == 0 {
		return nil
	}
	key := pick(p.world, slices.Sorted(maps.Keys(objects)))
	p.touched[kind] = true
	err := remove(objects[key])
	delete(objects, key)
	return err
}

// put creates an object, or replaces it if it exists.
func put[T any](ctx context.Context, exists bool, object T, create func(context.Context, T, metav1.CreateOptions) (T, error), update func(context.Context, T, metav1.UpdateOptions) (T, error)) error {
	var err error
	if exists {
		_, err = update(ctx, object, metav1.UpdateOptions{})
	} else {
		_, err = create(ctx, object, metav1.CreateOptions{})
	}
	return err
}

// aggregated returns an error until the cluster has aggregated the rules of the sources.
func (p *policy) aggregated(ctx context.Context) error {
	var want []rbacv1.PolicyRule
	for _, name := range slices.Sorted(maps.Keys(p.clusterRoles)) {
		role := p.clusterRoles[name]
		if _, is := role.Labels[p.aggregateLabel()]; !is {
			continue
		}
		for _, rule := range role.Rules {
			if !slices.ContainsFunc(want, func(other rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(rule, other) }) {
				want = append(want, rule)
			}
		}
	}
	aggregate, err := p.rbac.ClusterRoles().Get(ctx, p.aggregate(), metav1.GetOptions{})
	if err == nil && !equality.Semantic.DeepEqual(aggregate.Rules, want) {
		err = fmt.Errorf("ClusterRole %s has %d rules, want the %d rules of its sources", p.aggregate(), len(aggregate.Rules), len(want))
	}
	return err
}

func clusterRoleRef(name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
}
