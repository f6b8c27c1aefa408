package clusterpermission

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

type placedSubject struct {
	rbacv1.Subject
	path *field.Path
}

// subjects gives the subjects of a binding as they are on the managed cluster.
// Without any, the binding is left out: it would grant nothing.
func (r *renderer) subjects(single *rbacv1.Subject, several []rbacv1.Subject, fldPath *field.Path) []subject {
	given := r.givenSubjects(single, several, fldPath)
	delivered := make([]subject, 0, len(given))
	listed := make(map[subject]bool, len(given))
	add := func(s subject) {
		delivered = append(delivered, s)
		listed[s] = true
	}
	for _, s := range given {
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
		// Two subjects may stand for one ServiceAccount, which RBAC lists once.
		if !listed[account] {
			add(account)
		}
	}
	if len(delivered) == 0 && len(given) > 0 {
		r.leaveOut(fldPath, "no subject of this binding is delivered")
	}
	return delivered
}

// givenSubjects are those of both fields for subjects, which may repeat one.
func (r *renderer) givenSubjects(single *rbacv1.Subject, several []rbacv1.Subject, fldPath *field.Path) []placedSubject {
	given := make([]placedSubject, 0, len(several)+1)
	repeated := false
	for i, s := range several {
		given = append(given, placedSubject{s, fldPath.Child("subjects").Index(i)})
		repeated = repeated || single != nil && newSubject(s) == newSubject(*single)
	}
	if single != nil && !repeated {
		if len(given) > 0 {
			r.errs = append(r.errs, field.Forbidden(fldPath.Child("subject"), "must be one of subjects when both are given"))
		}
		given = append(given, placedSubject{*single, fldPath.Child("subject")})
	}
	if len(given) == 0 {
		r.errs = append(r.errs, field.Required(fldPath.Child("subjects"), "at least one subject is needed; give subject or subjects"))
	}
	return given
}
