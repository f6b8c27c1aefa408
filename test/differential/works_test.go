package differential_test

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// manifest is one manifest of a ManifestWork, with the live object of the same name.
type manifest struct {
	resource resource
	target   work.Target
	// live is the RBAC object of that name on the cluster. It is ignored if absent is set, and
	// has no effect on other kinds.
	live   *unstructured.Unstructured
	absent bool
	// delivers is the manifest, in the same ManifestWork, of the role that this manifest binds.
	delivers *manifest
}

func (m *manifest) String() string {
	life := "kept"
	if m.target.Removed {
		life = "deleted with the ManifestWork"
	}
	text := fmt.Sprintf("%s %s/%s, %s, %s", m.resource.Resource, m.target.Namespace, m.target.Name, m.target.Strategy, life)
	if m.live == nil {
		return text
	}
	// The required permissions also depend on the content of an RBAC object.
	return fmt.Sprintf("%s, from %v to %v", text, m.before(), m.target.Object)
}

// triple is a ManifestWork that is checked against the current policy.
type triple struct {
	manifests []*manifest
	// judged is set once the ManifestWork has been checked, and admitted is the last result.
	judged, admitted bool
	// expected contains the denials of the cluster, by manifest.
	expected map[int]string
	// byName is set if the agent denies a role that the executor could write. See costs.
	byName bool
}

func (c *triple) String() string { return fmt.Sprint(c.manifests) }

func (c *triple) targets() []work.Target {
	targets := make([]work.Target, len(c.manifests))
	for i, m := range c.manifests {
		m.target.Ordinal = i
		targets[i] = m.target
	}
	return targets
}

// triple returns a ManifestWork with one manifest, or with a role and a binding that refers to it.
func (w *world) triple() *triple {
	if !w.chance(12) {
		return &triple{manifests: []*manifest{w.manifest(w.resource(), w.strategy())}}
	}
	role := w.manifest(pick(w, []resource{roles, clusterRoles}), w.strategy())
	for role.target.Object.Object["rules"] == nil {
		// The API server aggregates the rules of an aggregated role only after a delay.
		role = w.manifest(clusterRoles, w.strategy())
	}
	binding := w.manifest(roleBindings, w.strategy())
	if role.resource == clusterRoles && w.chance(50) {
		binding = w.manifest(clusterRoleBindings, w.strategy())
	}
	if role.resource == roles {
		binding.target.Namespace = role.target.Namespace
		binding.target.Object.SetNamespace(role.target.Namespace)
		binding.live.SetNamespace(role.target.Namespace)
	}
	ref := map[string]any{"apiGroup": rbacv1.GroupName, "kind": role.resource.kind, "name": role.target.Name}
	binding.target.Object.Object["roleRef"], binding.live.Object["roleRef"] = ref, ref
	binding.delivers = role
	role.absent = w.chance(30)
	role.live.Object["rules"] = w.smallRules(role.resource == clusterRoles)
	delete(role.live.Object, "aggregationRule")
	return &triple{manifests: []*manifest{role, binding}}
}

func (w *world) strategy() workv1.UpdateStrategyType {
	return pick(w, []workv1.UpdateStrategyType{
		workv1.UpdateStrategyTypeUpdate, workv1.UpdateStrategyTypeUpdate, workv1.UpdateStrategyTypeUpdate,
		workv1.UpdateStrategyTypeServerSideApply, workv1.UpdateStrategyTypeServerSideApply,
		workv1.UpdateStrategyTypeCreateOnly, workv1.UpdateStrategyTypeReadOnly,
	})
}

// manifest returns a manifest of a resource.
func (w *world) manifest(r resource, strategy workv1.UpdateStrategyType) *manifest {
	m := &manifest{resource: r}
	namespace, name := "", pick(w, w.names)
	if r.namespaced {
		namespace = pick(w, w.namespaces)
	}
	if r == namespaces {
		// A Role in a namespace also grants access to the Namespace object.
		name = pick(w, []string{w.namespaces[0], w.id + "-ghost"})
		if strategy == workv1.UpdateStrategyTypeServerSideApply {
			name = w.id + "-ghost"
		}
	}
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(r.GroupVersion().WithKind(r.kind))
	object.SetNamespace(namespace)
	object.SetName(name)
	object.SetLabels(map[string]string{"differential.example.com/work": "applied"})
	for field, value := range w.content(r) {
		object.Object[field] = value
	}
	if r.Group == rbacv1.GroupName {
		m.live = w.liveRBAC(r, object, strategy)
	}
	m.target = work.Target{
		Resource: r.GroupVersionResource, Namespace: namespace, Name: name, Object: object,
		Strategy: strategy, Removed: strategy != workv1.UpdateStrategyTypeReadOnly && w.chance(70),
	}
	return m
}

// content returns the fields of a manifest other than its metadata.
func (w *world) content(r resource) map[string]any {
	switch r.kind {
	case "ConfigMap":
		return map[string]any{"data": map[string]any{"key": "value"}}
	case "Secret":
		return map[string]any{"data": map[string]any{"key": "dmFsdWU="}}
	case "Deployment":
		labels := map[string]any{"app": "differential"}
		return map[string]any{"spec": map[string]any{
			"replicas": int64(1), "selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{
				"metadata": map[string]any{"labels": labels},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "main", "image": "registry.example.com/main:1"}}},
			},
		}}
	case "NetworkPolicy":
		return map[string]any{"spec": map[string]any{"podSelector": map[string]any{}}}
	case "PriorityClass":
		return map[string]any{"value": int64(10)}
	case "Widget", "Gadget":
		return map[string]any{"spec": map[string]any{"size": int64(1)}}
	case "Role":
		return map[string]any{"rules": w.smallRules(false)}
	case "ClusterRole":
		if w.chance(15) {
			return map[string]any{"aggregationRule": w.aggregation()}
		}
		if w.chance(5) {
			// A manifest without rules keeps the rules of the live role.
			return nil
		}
		return map[string]any{"rules": w.smallRules(true)}
	case "RoleBinding", "ClusterRoleBinding":
		return map[string]any{"roleRef": w.roleRef(r), "subjects": []any{
			map[string]any{"apiGroup": rbacv1.GroupName, "kind": rbacv1.UserKind, "name": "someone"},
		}}
	}
	return nil
}

// aggregation returns an aggregation rule that selects no ClusterRole.
func (w *world) aggregation() map[string]any {
	return map[string]any{"clusterRoleSelectors": []any{
		map[string]any{"matchLabels": map[string]any{"differential.example.com/nothing": w.id}},
	}}
}

func (w *world) roleRef(r resource) map[string]any {
	kind, name := "ClusterRole", pick(w, []string{
		w.id + "-role-0", w.id + "-role-1", w.id + "-role-2", w.id + "-role-3", w.id + "-aggregate", w.id + "-wide",
		"view", "system:discovery", "cluster-admin", w.id + "-missing",
	})
	if r == roleBindings && w.chance(50) {
		kind, name = "Role", pick(w, []string{w.id + "-role-0", w.id + "-role-1", w.id + "-missing"})
	}
	return map[string]any{"apiGroup": rbacv1.GroupName, "kind": kind, "name": name}
}

// liveRBAC returns the object on the cluster before the manifest is applied. It mostly grants
// nothing, so that every write grants more.
func (w *world) liveRBAC(r resource, object *unstructured.Unstructured, strategy workv1.UpdateStrategyType) *unstructured.Unstructured {
	live := object.DeepCopy()
	live.SetLabels(nil)
	switch r {
	case roles, clusterRoles:
		live.Object["rules"] = []any{}
		delete(live.Object, "aggregationRule")
		switch {
		case w.chance(20):
			live.Object["rules"] = w.smallRules(r == clusterRoles)
		case r == clusterRoles && w.chance(20):
			live.Object["aggregationRule"] = w.aggregation()
		}
	default:
		live.Object["subjects"] = []any{}
		if strategy == workv1.UpdateStrategyTypeUpdate && w.chance(40) {
			live.Object["roleRef"] = map[string]any{"apiGroup": rbacv1.GroupName, "kind": "ClusterRole", "name": "view"}
		}
	}
	return live
}
