// Package clusterpermission renders ClusterPermissions into the ManifestWorks
// that deliver them. It is pure: equal inputs render to equal bytes.
package clusterpermission

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

const uidDigits = 5

// Inputs contains the objects that the rendering of a ClusterPermission depends on.
type Inputs struct {
	// Accounts contains the existing ManagedServiceAccounts of AccountNames.
	Accounts Accounts
	// PublicAgent describes the agent of the upstream add-on.
	PublicAgent PublicAgent
	// Namespaces are the namespaces of the managed cluster, in any order. They are
	// required if HasSelectors returns true.
	Namespaces []Namespace
	// NamespacesKnown is true if the agent has reported the namespaces. Otherwise parts
	// of the spec with selectors are not delivered.
	NamespacesKnown bool
	// HubRoles contains the existing roles of HubRoleKeys.
	HubRoles HubRoles
	// Executor is the executor of the ManifestWork, if any.
	Executor *workv1.ManifestWorkExecutor
	// SizeLimitBytes bounds the manifests of the ManifestWork and the cost of rendering
	// them; 0 means no bound.
	SizeLimitBytes int64
}

// Undelivered is a part of a spec that is not delivered to the managed cluster.
type Undelivered struct {
	// Path is the path of the part, for example spec.roles[1].namespaceSelector.
	Path string
	// Reason is a human-readable cause.
	Reason string
}

// Result is the result of rendering a ClusterPermission.
type Result struct {
	// Work is the ManifestWork that delivers the ClusterPermission. It is nil if no part
	// of the spec can be delivered, since a ManifestWork without manifests is invalid.
	Work *workv1.ManifestWork
	// Undelivered lists the parts that Work does not contain, in the order of the spec.
	Undelivered []Undelivered
	// AbsentSubjects lists the reasons why ManagedServiceAccounts of bindings have no
	// ServiceAccount on the managed cluster. It contains one reason for each account,
	// sorted by name.
	AbsentSubjects []string
	// MissingRoleRefs lists the roles of the hub that do not exist, for example
	// "ClusterRole x" or "Role ns/x", in the order of the spec.
	MissingRoleRefs []string
	// Selections lists the matches of each selector in the order of the spec.
	// It is empty while the namespaces are unknown.
	Selections []Selection
	// WaitingForNamespaces is true if the spec contains selectors and the namespaces
	// are unknown.
	WaitingForNamespaces bool
}

// Selection is the number of matches of a namespaceSelector.
type Selection struct {
	// Path is the path of the selector.
	Path string
	// Count is the number of namespaces of the managed cluster that it matches.
	Count int
}

// WorkName returns the name of the ManifestWork of a ClusterPermission. The name contains
// digits of the UID, so that a recreated ClusterPermission does not adopt the
// ManifestWork of its predecessor while it is being removed.
func WorkName(cp *v1alpha1.ClusterPermission) string {
	uid := string(cp.UID)
	if len(uid) > uidDigits {
		uid = uid[:uidDigits]
	}
	return cp.Name + "-" + uid
}

// Render returns the ManifestWork that delivers cp, and the parts of cp that it does not
// deliver. While the spec waits for approval, Render uses the last delivered spec. It
// returns errors if the rendering exceeds its limits. The spec is valid.
func Render(cp *v1alpha1.ClusterPermission, in Inputs) (*Result, field.ErrorList) {
	r := newRenderer(cp, &in)
	spec, generation := cp.Delivered()
	if spec != &cp.Spec {
		r.leaveOut(specPath, waitingReason(cp, spec, generation))
	}
	if spec == nil {
		return r.result, nil
	}
	r.collect(spec)
	template, configs := r.manifests(spec.Validate != nil && *spec.Validate)
	if r.budget.exceeded() {
		return nil, field.ErrorList{r.budget.err()}
	}
	if len(template.Manifests) > 0 {
		r.result.Work = newWork(cp, workv1.ManifestWorkSpec{
			Workload:        template,
			ManifestConfigs: configs,
			Executor:        in.Executor.DeepCopy(),
		})
	}
	return r.result, nil
}

func waitingReason(cp *v1alpha1.ClusterPermission, delivered *v1alpha1.ClusterPermissionSpec, generation int64) string {
	reason := fmt.Sprintf("generation %d waits for approval", cp.Status.Approval.Pending.Generation)
	if delivered != nil {
		reason += fmt.Sprintf("; generation %d stays delivered", generation)
	}
	return reason
}

func newWork(cp *v1alpha1.ClusterPermission, spec workv1.ManifestWorkSpec) *workv1.ManifestWork {
	owner := v1alpha1.SchemeGroupVersion.WithKind("ClusterPermission")
	return &workv1.ManifestWork{
		TypeMeta: metav1.TypeMeta{
			APIVersion: workv1.SchemeGroupVersion.String(),
			Kind:       "ManifestWork",
		},
		ObjectMeta: metav1.ObjectMeta{
			Name:            WorkName(cp),
			Namespace:       cp.Namespace,
			Annotations:     map[string]string{v1alpha1.DeliveredAnnotation: cp.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cp, owner)},
		},
		Spec: spec,
	}
}

// specs returns the delivered spec of a ClusterPermission, if any, and its current spec.
func specs(cp *v1alpha1.ClusterPermission) []*v1alpha1.ClusterPermissionSpec {
	switch delivered, _ := cp.Delivered(); delivered {
	case nil, &cp.Spec:
		return []*v1alpha1.ClusterPermissionSpec{&cp.Spec}
	default:
		return []*v1alpha1.ClusterPermissionSpec{delivered, &cp.Spec}
	}
}
