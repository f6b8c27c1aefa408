// Package clusterpermission renders ClusterPermissions into the ManifestWorks
// that deliver them. It is pure: equal input gives equal bytes, whoever asks
// and whenever.
package clusterpermission

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

const uidDigits = 5

// Inputs is what the rendering of a ClusterPermission depends on besides the
// object itself, resolved by the caller.
type Inputs struct {
	// Accounts are the ManagedServiceAccounts of the namespace, as far as the
	// ClusterPermission names them: see AccountNames. One that is not there does not exist.
	Accounts Accounts
	// PublicAgent is where the public addon's agent keeps ServiceAccounts. It does
	// not report that itself.
	PublicAgent PublicAgent
	// Namespaces are those of the managed cluster, in any order. They matter where
	// there are selectors: see HasSelectors.
	Namespaces []Namespace
	// NamespacesKnown says that the agent has reported the namespaces. Without that,
	// nothing is delivered by selectors.
	NamespacesKnown bool
	// HubRoles are the roles of the hub, as far as the ClusterPermission refers to
	// them: see HubRoleKeys. One that is not there does not exist.
	HubRoles HubRoles
	// Executor is the identity that the work acts as; nil for that of the agent.
	Executor *workv1.ManifestWorkExecutor
	// SizeLimitBytes bounds the manifests of the work, and with them what it takes to
	// render them; 0 means no bound.
	SizeLimitBytes int64
}

// Undelivered is a part of a spec that is not delivered to the managed cluster.
type Undelivered struct {
	// Path is where in the ClusterPermission the part is, for example spec.roles[1].namespaceSelector.
	Path string
	// Reason says to a person why it is not delivered.
	Reason string
}

// Result is what a ClusterPermission renders to.
type Result struct {
	// Work delivers the ClusterPermission. It is nil if nothing of the spec can
	// be delivered; then no work should exist, since one without manifests is invalid.
	Work *workv1.ManifestWork
	// Undelivered lists, in the order of the spec, what the work leaves out.
	Undelivered []Undelivered
	// AbsentSubjects says why each ManagedServiceAccount that a binding names has no
	// ServiceAccount on the managed cluster; each account once, sorted by name.
	AbsentSubjects []string
	// MissingRoleRefs are the roles of the hub that do not exist, such as
	// "ClusterRole x" or "Role ns/x", in the order of the spec.
	MissingRoleRefs []string
	// Selections tells of each selector, in the order of the spec, what it matched.
	// It is empty while the namespaces are not known.
	Selections []Selection
	// WaitingForNamespaces says that there are selectors, but that the namespaces
	// are not known.
	WaitingForNamespaces bool
}

// Selection is what a namespaceSelector matched.
type Selection struct {
	// Path is where in the ClusterPermission the selector is.
	Path string
	// Count is how many namespaces of the managed cluster it matches.
	Count int
}

// WorkName is the name of the work that delivers a ClusterPermission. The
// digits of the UID keep a recreated ClusterPermission from taking over the
// work of its predecessor while that is being removed.
func WorkName(cp *v1alpha1.ClusterPermission) string {
	uid := string(cp.UID)
	if len(uid) > uidDigits {
		uid = uid[:uidDigits]
	}
	return cp.Name + "-" + uid
}

// Render gives the work that delivers cp, and what of cp it does not deliver. A
// spec that waits for approval is not rendered; the one that was delivered before
// is. Render fails, without a result, on a spec that cannot be rendered without
// dropping or guessing a part; validation refuses such a spec, but an object that
// was stored before may have one.
func Render(cp *v1alpha1.ClusterPermission, in Inputs) (*Result, field.ErrorList) {
	r := newRenderer(cp, &in)
	spec, generation := cp.Delivered()
	if spec != &cp.Spec {
		r.leaveOut(specPath, waitingReason(cp, spec, generation))
	}
	if spec == nil {
		return r.result, nil
	}
	r.gather(spec)
	template, configs := r.manifests(spec.Validate != nil && *spec.Validate)
	if r.budget.exceeded() {
		r.errs = append(r.errs, r.budget.refusal())
	}
	if len(r.errs) > 0 {
		return nil, r.errs
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
