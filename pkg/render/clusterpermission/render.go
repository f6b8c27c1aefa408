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
	// SizeLimitBytes bounds the manifests of the work; 0 means no bound.
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

// Render gives the work that delivers cp, and what of cp it does not deliver.
// It fails, without a result, on a spec that cannot be rendered without
// dropping or guessing a part; validation refuses such a spec, but an object
// that was stored before may have one.
func Render(cp *v1alpha1.ClusterPermission, in Inputs) (*Result, field.ErrorList) {
	r := renderer{cp: cp, accounts: in.Accounts, seen: map[objectKey]bool{}}
	r.render()
	if size := r.sizeBytes(); in.SizeLimitBytes > 0 && size > in.SizeLimitBytes {
		err := field.TooLong(specPath, "", int(in.SizeLimitBytes))
		err.Detail = fmt.Sprintf("renders to %d bytes of manifests, may not be more than %d bytes", size, in.SizeLimitBytes)
		r.errs = append(r.errs, err)
	}
	if len(r.errs) > 0 {
		return nil, r.errs
	}
	result := &Result{Undelivered: r.undelivered}
	if len(r.manifests) > 0 {
		result.Work = newWork(cp, r.manifests, r.configs)
	}
	return result, nil
}

func newWork(cp *v1alpha1.ClusterPermission, manifests []workv1.Manifest, configs []workv1.ManifestConfigOption) *workv1.ManifestWork {
	owner := v1alpha1.SchemeGroupVersion.WithKind("ClusterPermission")
	return &workv1.ManifestWork{
		TypeMeta: metav1.TypeMeta{
			APIVersion: workv1.SchemeGroupVersion.String(),
			Kind:       "ManifestWork",
		},
		ObjectMeta: metav1.ObjectMeta{
			Name:            WorkName(cp),
			Namespace:       cp.Namespace,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cp, owner)},
		},
		Spec: workv1.ManifestWorkSpec{
			Workload:        workv1.ManifestsTemplate{Manifests: manifests},
			ManifestConfigs: configs,
		},
	}
}
