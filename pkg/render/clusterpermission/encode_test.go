package clusterpermission

import (
	"encoding/json"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
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

	raw, err := encode(&object{
		objectKey: objectKey{kind: kindRoleBinding, namespace: "default", name: "p"},
		rules:     newRules([]rbacv1.PolicyRule{given}),
		roleRef:   roleRef,
		subjects:  []subject{newSubject(givenSubject)},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		rbacv1.RoleBinding
		Rules []rbacv1.PolicyRule `json:"rules"`
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if got.Kind != kindRoleBinding || got.APIVersion != "rbac.authorization.k8s.io/v1" || got.Namespace != "default" || got.Name != "p" {
		t.Errorf("got %s", raw)
	}
	if len(got.Rules) != 1 || !equality.Semantic.DeepEqual(got.Rules[0], given) {
		t.Errorf("got rules %v, want %v", got.Rules, given)
	}
	if len(got.Subjects) != 1 || got.Subjects[0] != givenSubject {
		t.Errorf("got subjects %v, want %v", got.Subjects, givenSubject)
	}
	if got.RoleRef != *roleRef {
		t.Errorf("got roleRef %v, want %v", got.RoleRef, roleRef)
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
