package clusterpermission

import (
	"encoding/json"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"
)

// A field that RBAC gets some day must not be dropped on the way.
func TestEncodeKeepsEveryField(t *testing.T) {
	fill := randfill.NewWithSeed(1).NilChance(0).NumElements(1, 3)
	var given rbacv1.PolicyRule
	var givenSubject rbacv1.Subject
	roleRef := &rbacv1.RoleRef{}
	fill.Fill(&given)
	fill.Fill(&givenSubject)
	fill.Fill(roleRef)

	role := newObject(objectKey{kind: kindRole, namespace: "default", name: "p"}, nil, newRules([]rbacv1.PolicyRule{given}))
	binding := newObject(objectKey{kind: kindRoleBinding, namespace: "default", name: "p"}, roleRef, newSubjects([]subject{newSubject(givenSubject)}))
	var gotRole rbacv1.Role
	var gotBinding rbacv1.RoleBinding
	for obj, got := range map[*object]metav1.Object{role: &gotRole, binding: &gotBinding} {
		raw := obj.manifest()
		if err := json.Unmarshal(raw, got); err != nil {
			t.Fatal(err)
		}
		if got.GetNamespace() != "default" || got.GetName() != "p" {
			t.Errorf("got %s", raw)
		}
		if obj.sizeBytes() != int64(len(raw)) {
			t.Errorf("%s is %d bytes, counted as %d", raw, len(raw), obj.sizeBytes())
		}

		// A storage that decodes and encodes a manifest sorts its keys.
		var generic any
		if err := json.Unmarshal(raw, &generic); err != nil {
			t.Fatal(err)
		}
		if stored, err := json.Marshal(generic); err != nil || string(stored) != string(raw) {
			t.Errorf("written as %s, stored as %s (%v)", raw, stored, err)
		}
	}
	if want := (metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: kindRole}); gotRole.TypeMeta != want {
		t.Errorf("got %v, want %v", gotRole.TypeMeta, want)
	}
	if want := (metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: kindRoleBinding}); gotBinding.TypeMeta != want {
		t.Errorf("got %v, want %v", gotBinding.TypeMeta, want)
	}
	if len(gotRole.Rules) != 1 || !equality.Semantic.DeepEqual(gotRole.Rules[0], given) {
		t.Errorf("got rules %v, want %v", gotRole.Rules, given)
	}
	if len(gotBinding.Subjects) != 1 || gotBinding.Subjects[0] != givenSubject {
		t.Errorf("got subjects %v, want %v", gotBinding.Subjects, givenSubject)
	}
	if gotBinding.RoleRef != *roleRef {
		t.Errorf("got roleRef %v, want %v", gotBinding.RoleRef, roleRef)
	}
}
