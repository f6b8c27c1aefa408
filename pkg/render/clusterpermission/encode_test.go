package clusterpermission

import (
	"encoding/json"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"

	"open-cluster-management.io/hub-apiserver/test/seed"
)

// A future field of RBAC must not be dropped silently.
func TestEncodeKeepsEveryField(t *testing.T) {
	fill := randfill.NewWithSeed(int64(seed.Of(t))).NilChance(0).NumElements(1, 3)
	var filled rbacv1.PolicyRule
	var filledSubject rbacv1.Subject
	roleRef := &rbacv1.RoleRef{}
	fill.Fill(&filled)
	fill.Fill(&filledSubject)
	fill.Fill(roleRef)

	role := newObject(ObjectKey{Kind: kindRole, Namespace: "default", Name: "p"}, nil, newRules([]rbacv1.PolicyRule{filled}))
	binding := newObject(ObjectKey{Kind: kindRoleBinding, Namespace: "default", Name: "p"}, roleRef, newSubjects([]subject{newSubject(filledSubject)}))
	var gotRole rbacv1.Role
	var gotBinding rbacv1.RoleBinding
	for obj, got := range map[*object]metav1.Object{role: &gotRole, binding: &gotBinding} {
		raw := obj.manifest()
		if err := json.Unmarshal(raw, got); err != nil {
			t.Fatal(err)
		}
		if got.GetNamespace() != "default" || got.GetName() != "p" {
			t.Errorf("manifest = %s, want default/p", raw)
		}
		if obj.sizeBytes() != int64(len(raw)) {
			t.Errorf("sizeBytes() of %s = %d, want %d", raw, obj.sizeBytes(), len(raw))
		}

		// Decoding and encoding by the storage sorts the keys.
		var generic any
		if err := json.Unmarshal(raw, &generic); err != nil {
			t.Fatal(err)
		}
		if stored, err := json.Marshal(generic); err != nil || string(stored) != string(raw) {
			t.Errorf("stored manifest = %s, %v, want %s", stored, err, raw)
		}
	}
	if want := (metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: kindRole}); gotRole.TypeMeta != want {
		t.Errorf("TypeMeta = %v, want %v", gotRole.TypeMeta, want)
	}
	if want := (metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: kindRoleBinding}); gotBinding.TypeMeta != want {
		t.Errorf("TypeMeta = %v, want %v", gotBinding.TypeMeta, want)
	}
	if len(gotRole.Rules) != 1 || !equality.Semantic.DeepEqual(gotRole.Rules[0], filled) {
		t.Errorf("rules = %v, want %v", gotRole.Rules, filled)
	}
	if len(gotBinding.Subjects) != 1 || gotBinding.Subjects[0] != filledSubject {
		t.Errorf("subjects = %v, want %v", gotBinding.Subjects, filledSubject)
	}
	if gotBinding.RoleRef != *roleRef {
		t.Errorf("roleRef = %v, want %v", gotBinding.RoleRef, roleRef)
	}
}
