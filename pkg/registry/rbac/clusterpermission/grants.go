package clusterpermission

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/escalation"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
	"open-cluster-management.io/hub-apiserver/pkg/tracing"
)

// EscalationCheck is the action for a ClusterPermission that grants more than its author may grant.
type EscalationCheck string

const (
	// Enforce refuses the ClusterPermission.
	Enforce EscalationCheck = "Enforce"
	// Approve stores the ClusterPermission, and delivers it after a user with permission to grant
	// it has approved it.
	Approve EscalationCheck = "Approve"
	// Warn delivers the ClusterPermission and returns a warning.
	Warn EscalationCheck = "Warn"
	// Off disables the check.
	Off EscalationCheck = "Off"
)

// EscalationChecks lists the supported values.
var EscalationChecks = []EscalationCheck{Enforce, Approve, Warn, Off}

// grants decides whether callers may grant a ClusterPermission.
type grants struct {
	check      EscalationCheck
	checker    *escalation.Checker
	authorizer authorizer.Authorizer
	// hubNamespaces is true if selectors match namespaces of the hub, which not every caller may list.
	hubNamespaces bool
}

// change returns the requested object and the spec that is already delivered, if any. The delivered
// spec was granted or approved earlier. old is nil for a new object.
func change(obj, old *rbac.ClusterPermission) (*rbacv1alpha1.ClusterPermission, *rbacv1alpha1.ClusterPermissionSpec) {
	if old == nil {
		return versioned(obj), nil
	}
	delivered, _ := versioned(old).Delivered()
	return versioned(obj), delivered
}

// refusal returns the grants that obj adds to the delivered spec and that the caller may not make.
func (g *grants) refusal(ctx context.Context, obj, old *rbac.ClusterPermission) (*escalation.Refusal, error) {
	permission, delivered := change(obj, old)
	ctx, span := tracing.Start(ctx, "Check escalation",
		tracing.Text("clusterpermission.namespace", permission.Namespace), tracing.Text("clusterpermission.name", permission.Name))
	refusal, err := g.checker.Check(ctx, permission, delivered)
	reason := tracing.Reason(err)
	if refusal != nil {
		reason = string(metav1.StatusReasonForbidden)
	}
	tracing.End(span, reason)
	return refusal, err
}

// decision is what becomes of a new or changed spec. It is made once for a write: when the object is prepared.
type decision struct {
	// pending is true if the spec is not delivered before it is approved.
	pending bool
	// refusal checks the grants once. It returns those that the caller may not make.
	refusal func() (*escalation.Refusal, error)
}

// decide decides about a new or changed spec. old is nil for a new object.
func (g *grants) decide(ctx context.Context, obj, old *rbac.ClusterPermission) *decision {
	d := &decision{refusal: sync.OnceValues(func() (*escalation.Refusal, error) { return g.refusal(ctx, obj, old) })}
	switch {
	case g.check == Off:
		d.refusal = func() (*escalation.Refusal, error) { return nil, nil }
	case g.check != Warn && isPending(old):
		// The author of a patch may not have seen the pending spec that the patch keeps.
		d.pending = escalation.More(change(obj, old))
	case g.check == Approve:
		// If the check fails, admit refuses the write.
		refusal, err := d.refusal()
		d.pending = err != nil || refusal != nil
	}
	return d
}

// answer returns an error if the caller may not make all grants. If refuse is false, it adds warnings instead.
func (d *decision) answer(ctx context.Context, refuse bool) error {
	refusal, err := d.refusal()
	if err != nil || refusal == nil {
		return err
	}
	if refuse {
		return refusal.Forbidden()
	}
	for _, text := range refusal.Warnings() {
		warning.AddWarning(ctx, "", text)
	}
	return nil
}

// admit checks an object that is complete and valid. old is nil for a new object.
func (g *grants) admit(ctx context.Context, obj, old *rbac.ClusterPermission, d *decision) error {
	if err := g.checkReads(ctx, obj, old); err != nil {
		return err
	}
	if d.pending {
		warning.AddWarning(ctx, "", "the ClusterPermission is stored, but not delivered until it is approved")
	}
	return d.answer(ctx, g.check == Enforce)
}

func isPending(c *rbac.ClusterPermission) bool {
	return c != nil && c.Status.Approval != nil && c.Status.Approval.Pending != nil
}

// checkReads refuses references to hub roles that the caller may not read, since the ManifestWork
// contains their rules, and selectors of hub namespaces that the caller may not list.
func (g *grants) checkReads(ctx context.Context, obj, old *rbac.ClusterPermission) error {
	permission, delivered := change(obj, old)
	var added []rbacv1alpha1.HubRoleRef
	for _, ref := range ptr.Deref(permission.Spec.RoleRefs, nil) {
		if delivered == nil || !slices.Contains(ptr.Deref(delivered.RoleRefs, nil), ref) {
			added = append(added, ref)
		}
	}
	if err := escalation.Reads(ctx, g.authorizer, permission.Name, added); err != nil {
		return err
	}
	// The status contains the selected namespaces. The checks Warn and Off refuse nothing.
	if !g.hubNamespaces || g.check == Warn || g.check == Off || !selectsMore(permission, delivered) {
		return nil
	}
	return escalation.ReadsNamespaces(ctx, g.authorizer, permission.Name)
}

// selectsMore reports whether a spec has selectors that the delivered spec does not have.
func selectsMore(permission *rbacv1alpha1.ClusterPermission, delivered *rbacv1alpha1.ClusterPermissionSpec) bool {
	known := sets.New[string]()
	if delivered != nil {
		for _, selector := range render.Selectors(&rbacv1alpha1.ClusterPermission{Spec: *delivered}) {
			known.Insert(selector.String())
		}
	}
	present := &rbacv1alpha1.ClusterPermission{Spec: permission.Spec}
	return slices.ContainsFunc(render.Selectors(present), func(selector labels.Selector) bool { return !known.Has(selector.String()) })
}

// writeKey is the key of the write in the context of a request.
type writeKey struct{}

// prepare decides about a new or changed spec, keeps the decision for admit, and marks the spec as pending if it needs approval.
// old is nil for a new object. It runs before validation.
func (g *grants) prepare(ctx context.Context, obj, old *rbac.ClusterPermission) {
	generation := int64(1)
	if old != nil {
		if equality.Semantic.DeepEqual(obj.Spec, old.Spec) {
			return
		}
		generation = old.Generation + 1
	}
	d := g.decide(ctx, obj, old)
	if w, ok := ctx.Value(writeKey{}).(*write); ok {
		w.decision = d
	}
	if obj.Status.Approval != nil {
		// Only the last approval stays when the spec changes.
		approval := obj.Status.Approval.DeepCopy()
		approval.Pending, approval.Delivered = nil, nil
		if obj.Status.Approval = approval; approval.Approved == nil {
			obj.Status.Approval = nil
		}
	}
	if !d.pending {
		return
	}
	if obj.Status.Approval == nil {
		obj.Status.Approval = &rbacv1alpha1.Approval{}
	}
	obj.Status.Approval.Delivered = deliveredGeneration(old)
	obj.Status.Approval.Pending = &rbacv1alpha1.PendingGeneration{Generation: generation, RequestedBy: definition.Caller(ctx), RequestedAt: metav1.Now()}
}

// deliveredGeneration returns the generation that a stored ClusterPermission delivers, or nil.
func deliveredGeneration(old *rbac.ClusterPermission) *rbacv1alpha1.DeliveredGeneration {
	switch {
	case old == nil:
		return nil
	case !isPending(old):
		return &rbacv1alpha1.DeliveredGeneration{Generation: old.Generation, Spec: *old.Spec.DeepCopy()}
	}
	return old.Status.Approval.Delivered.DeepCopy()
}

// versioned returns a shallow copy of an object in the served version.
func versioned(obj *rbac.ClusterPermission) *rbacv1alpha1.ClusterPermission {
	out := rbacv1alpha1.ClusterPermission(*obj)
	return &out
}
