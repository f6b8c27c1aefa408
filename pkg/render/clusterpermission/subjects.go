package clusterpermission

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

type placedSubject struct {
	rbacv1.Subject
	path *field.Path
}

// subjects returns the subjects of a binding on the managed cluster. A binding without
// subjects is not delivered.
func (r *renderer) subjects(single *rbacv1.Subject, several []rbacv1.Subject, fldPath *field.Path) []subject {
	listed := r.listSubjects(single, several, fldPath)
	delivered := make([]subject, 0, len(listed))
	added := make(map[subject]bool, len(listed))
	add := func(s subject) {
		delivered = append(delivered, s)
		added[s] = true
	}
	for _, s := range listed {
		if !isAccount(s.Subject) {
			add(newSubject(s.Subject))
			continue
		}
		account, absent := r.account(s.Subject)
		if absent != "" {
			r.leaveOut(s.path, absent)
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

// listSubjects returns the subjects of a binding with the paths of their fields.
func (r *renderer) listSubjects(single *rbacv1.Subject, several []rbacv1.Subject, fldPath *field.Path) []placedSubject {
	subjects := v1alpha1.BindingSubjects(single, several)
	listed := make([]placedSubject, 0, len(subjects))
	for i, s := range subjects {
		path := fldPath.Child("subject")
		if len(several) > 0 {
			path = fldPath.Child("subjects").Index(i)
		}
		listed = append(listed, placedSubject{s, path})
	}
	return listed
}
