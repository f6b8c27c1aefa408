package clusterpermission

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

// subjects returns the subjects of a binding on the managed cluster. A binding without
// subjects is not delivered.
func (r *renderer) subjects(single *rbacv1.Subject, several []rbacv1.Subject, fldPath *field.Path) []subject {
	listed := v1alpha1.BindingSubjects(single, several)
	delivered := make([]subject, 0, len(listed))
	added := make(map[subject]bool, len(listed))
	add := func(s subject) {
		delivered = append(delivered, s)
		added[s] = true
	}
	for i, s := range listed {
		if !isAccount(s) {
			add(newSubject(s))
			continue
		}
		account, absent := r.account(s)
		if absent != "" {
			path := fldPath.Child("subject")
			if len(several) > 0 {
				path = fldPath.Child("subjects").Index(i)
			}
			r.leaveOut(path, absent)
			r.absent[s.Name] = absent
			continue
		}
		// Two subjects may refer to one ServiceAccount, which is delivered once.
		if !added[account] {
			add(account)
		}
	}
	if len(delivered) == 0 && len(listed) > 0 {
		r.leaveOut(fldPath, "no subject of the binding exists on the managed cluster")
	}
	return delivered
}
