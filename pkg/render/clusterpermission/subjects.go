package clusterpermission

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
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

// listSubjects returns the subjects of the fields subject and subjects, one of which may be in both.
func (r *renderer) listSubjects(single *rbacv1.Subject, several []rbacv1.Subject, fldPath *field.Path) []placedSubject {
	listed := make([]placedSubject, 0, len(several)+1)
	repeated := false
	for i, s := range several {
		listed = append(listed, placedSubject{s, fldPath.Child("subjects").Index(i)})
		repeated = repeated || single != nil && newSubject(s) == newSubject(*single)
	}
	if single != nil && !repeated {
		if len(listed) > 0 {
			r.errs = append(r.errs, field.Forbidden(fldPath.Child("subject"), "must be one of subjects if both are set"))
		}
		listed = append(listed, placedSubject{*single, fldPath.Child("subject")})
	}
	if len(listed) == 0 {
		r.errs = append(r.errs, field.Required(fldPath.Child("subjects"), "at least one of subject and subjects must be set"))
	}
	return listed
}
