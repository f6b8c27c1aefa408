package v1alpha1

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

func TestBindingSubjects(t *testing.T) {
	alice, bob := rbacv1.Subject{Kind: "User", Name: "alice"}, rbacv1.Subject{Kind: "User", Name: "bob"}
	for name, c := range map[string]struct {
		subject  *rbacv1.Subject
		subjects []rbacv1.Subject
		want     []rbacv1.Subject
	}{
		"none":                {},
		"subject":             {&alice, nil, []rbacv1.Subject{alice}},
		"subjects":            {nil, []rbacv1.Subject{alice, bob}, []rbacv1.Subject{alice, bob}},
		"different":           {&alice, []rbacv1.Subject{bob}, []rbacv1.Subject{bob}},
		"empty, and subjects": {&rbacv1.Subject{}, []rbacv1.Subject{bob}, []rbacv1.Subject{bob}},
		"empty":               {&rbacv1.Subject{}, nil, nil},
	} {
		if got := BindingSubjects(c.subject, c.subjects); !slices.Equal(got, c.want) {
			t.Errorf("%s: BindingSubjects() = %v, want %v", name, got, c.want)
		}
	}
}
