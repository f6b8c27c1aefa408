package clusterpermission

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
	"open-cluster-management.io/hub-apiserver/pkg/authz/escalation"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
)

// EscalationCheck says what becomes of a ClusterPermission that grants more than
// its author may grant.
type EscalationCheck string

const (
	// Enforce refuses it.
	Enforce EscalationCheck = "Enforce"
	// Approve stores it, but does not deliver it before somebody has approved it
	// who may grant what it grants.
	Approve EscalationCheck = "Approve"
	// Warn stores and delivers it, and warns the author.
	Warn EscalationCheck = "Warn"
	// Off does not look.
	Off EscalationCheck = "Off"
)

// EscalationChecks are all that there are.
var EscalationChecks = []EscalationCheck{Enforce, Approve, Warn, Off}

// grants decides what callers may grant.
type grants struct {
	check      EscalationCheck
	checker    *escalation.Checker
	authorizer authorizer.Authorizer
	// hubNamespaces says that selectors select namespaces of the hub, which not every
	// caller may see.
	hubNamespaces bool
}

// change is what a caller asks for, and the spec that is delivered already, which
// somebody was allowed to grant; nil if none is. old is nil for a new object.
func change(obj, old *rbac.ClusterPermission) (*rbacv1alpha1.ClusterPermission, *rbacv1alpha1.ClusterPermissionSpec, error) {
	permission, err := versioned(obj)
	if err != nil || old == nil {
		return permission, nil, err
	}
	stored, err := versioned(old)
	if err != nil {
		return nil, nil, err
	}
	delivered, _ := stored.Delivered()
	return permission, delivered, nil
}

// refusal tells what of obj the caller may not grant, beyond what old delivers.
func (g *grants) refusal(ctx context.Context, obj, old *rbac.ClusterPermission) (*escalation.Refusal, error) {
	permission, delivered, err := change(obj, old)
	if err != nil {
		return nil, err
	}
	return g.checker.Check(ctx, permission, delivered)
}

// admit judges an object that is complete and valid. old is nil for a new one.
func (g *grants) admit(ctx context.Context, obj, old *rbac.ClusterPermission) error {
	if err := g.reads(ctx, obj, old); err != nil {
		return err
	}
	pending := waits(obj)
	if pending {
		warning.AddWarning(ctx, "", "stored, but not delivered before it is approved")
	}
	if g.check == Approve && !pending {
		return nil
	}
	return g.judge(ctx, obj, old, g.check == Enforce)
}

// judge refuses what the caller may not grant, or warns of it.
func (g *grants) judge(ctx context.Context, obj, old *rbac.ClusterPermission, refuse bool) error {
	if g.check == Off {
		return nil
	}
	refusal, err := g.refusal(ctx, obj, old)
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

func waits(c *rbac.ClusterPermission) bool {
	return c != nil && c.Status.Approval != nil && c.Status.Approval.Pending != nil
}

// reads refuses references to roles of the hub that the caller may not read, since
// the ManifestWork would show them, and selectors of namespaces that it may not list.
func (g *grants) reads(ctx context.Context, obj, old *rbac.ClusterPermission) error {
	permission, delivered, err := change(obj, old)
	if err != nil {
		return err
	}
	var added []rbacv1alpha1.HubRoleRef
	for _, ref := range ptr.Deref(permission.Spec.RoleRefs, nil) {
		if delivered == nil || !slices.Contains(ptr.Deref(delivered.RoleRefs, nil), ref) {
			added = append(added, ref)
		}
	}
	if err := escalation.Reads(ctx, g.authorizer, permission.Name, added); err != nil {
		return err
	}
	// The status names what is selected. A check that only warns refuses nothing.
	if !g.hubNamespaces || g.check == Warn || g.check == Off || !selectsMore(permission, delivered) {
		return nil
	}
	return escalation.ReadsNamespaces(ctx, g.authorizer, permission.Name)
}

// selectsMore tells whether a spec has selectors that what is delivered has not.
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

// prepare marks a new or changed spec that waits for approval. old is nil for a
// new object. It runs before validation, on whatever the caller has sent.
func (g *grants) prepare(ctx context.Context, obj, old *rbac.ClusterPermission) {
	generation := int64(1)
	if old != nil {
		if equality.Semantic.DeepEqual(obj.Spec, old.Spec) {
			return
		}
		generation = old.Generation + 1
	}
	pending := g.mustWait(ctx, obj, old)
	if obj.Status.Approval != nil {
		// A spec that waits no longer, or that is replaced, leaves what was approved.
		approval := obj.Status.Approval.DeepCopy()
		approval.Pending, approval.Delivered = nil, nil
		if obj.Status.Approval = approval; approval.Approved == nil {
			obj.Status.Approval = nil
		}
	}
	if !pending {
		return
	}
	if obj.Status.Approval == nil {
		obj.Status.Approval = &rbac.Approval{}
	}
	obj.Status.Approval.Delivered = deliveredGeneration(old)
	obj.Status.Approval.Pending = &rbac.PendingGeneration{Generation: generation, RequestedBy: caller(ctx), RequestedAt: metav1.Now()}
}

// mustWait tells whether a new or changed spec has to be approved.
func (g *grants) mustWait(ctx context.Context, obj, old *rbac.ClusterPermission) bool {
	if g.check == Warn || g.check == Off {
		return false
	}
	if waits(old) {
		// A patch keeps what its author may not even have seen.
		permission, delivered, err := change(obj, old)
		return err != nil || escalation.More(permission, delivered)
	}
	if g.check != Approve {
		return false
	}
	refusal, err := g.refusal(ctx, obj, old)
	if err != nil {
		// Who cannot be shown to be allowed is not.
		klog.FromContext(ctx).Error(err, "ClusterPermission waits for approval", "clusterPermission", klog.KObj(obj))
	}
	return err != nil || refusal != nil
}

// deliveredGeneration is what a stored ClusterPermission delivers; nil if nothing.
func deliveredGeneration(old *rbac.ClusterPermission) *rbac.DeliveredGeneration {
	switch {
	case old == nil:
		return nil
	case !waits(old):
		return &rbac.DeliveredGeneration{Generation: old.Generation, Spec: *old.Spec.DeepCopy()}
	}
	return old.Status.Approval.Delivered.DeepCopy()
}

// caller is the name of the user who sends the request.
func caller(ctx context.Context) string {
	if user, known := request.UserFrom(ctx); known {
		return user.GetName()
	}
	return ""
}

func versioned(obj *rbac.ClusterPermission) (*rbacv1alpha1.ClusterPermission, error) {
	out := &rbacv1alpha1.ClusterPermission{}
	if err := scheme.Scheme.Convert(obj, out, nil); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("converting a ClusterPermission: %w", err))
	}
	return out, nil
}
