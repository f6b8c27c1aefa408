package validation

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication"
	authenticationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/fieldtest"
)

var (
	dave   = rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "dave"}
	devs   = rbacv1.Subject{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "my-group"}
	robot  = rbacv1.Subject{Kind: "ServiceAccount", Namespace: "ci", Name: "robot"}
	nobody = rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName}
)

func binding(subjects ...rbacv1.Subject) *authentication.ManagedServiceAccountBinding {
	return &authentication.ManagedServiceAccountBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "deployers"},
		Spec: authenticationv1alpha1.ManagedServiceAccountBindingSpec{
			Ref: authenticationv1alpha1.ManagedServiceAccountReference{Namespace: "cluster1", Name: "deployer"}, Subjects: subjects,
		},
	}
}

func TestBinding(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*authentication.ManagedServiceAccountBinding)
		want   []string
	}{
		"valid": {func(*authentication.ManagedServiceAccountBinding) {}, nil},
		"no subjects": {func(b *authentication.ManagedServiceAccountBinding) {
			b.Spec.Subjects = nil
		}, nil},
		"duplicate subject": {func(b *authentication.ManagedServiceAccountBinding) {
			b.Spec.Subjects = append(b.Spec.Subjects, dave)
		}, nil},
		"no name": {func(b *authentication.ManagedServiceAccountBinding) {
			b.Name = ""
		}, []string{"metadata.name: Required value"}},
		"bad name": {func(b *authentication.ManagedServiceAccountBinding) {
			b.Name = "a/b"
		}, []string{"metadata.name: Invalid value"}},
		"no account": {func(b *authentication.ManagedServiceAccountBinding) {
			b.Spec.Ref.Name = ""
		}, []string{"spec.ref.name: Required value"}},
		"invalid account name": {func(b *authentication.ManagedServiceAccountBinding) {
			b.Spec.Ref.Name = "Deployer:x"
		}, []string{"spec.ref.name: Invalid value"}},
		"an account of another namespace": {func(b *authentication.ManagedServiceAccountBinding) {
			b.Spec.Ref.Namespace = "cluster2"
		}, []string{"spec.ref.namespace: Invalid value"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := binding(dave, devs, robot)
			test.change(b)
			fieldtest.Check(t, ManagedServiceAccountBinding.New(b), test.want...)
		})
	}
}

func TestSubjects(t *testing.T) {
	const at = "spec.subjects[0]."
	for name, test := range map[string]struct {
		subject rbacv1.Subject
		want    []string
	}{
		"user":                                {dave, nil},
		"group":                               {devs, nil},
		"service account":                     {robot, nil},
		"user with colons":                    {rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "oidc:dave@example.com"}, nil},
		"user without a name":                 {nobody, []string{at + "name: Required value"}},
		"user without an API group":           {rbacv1.Subject{Kind: "User", Name: "dave"}, nil},
		"user in a namespace":                 {rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "dave", Namespace: "a"}, []string{at + "namespace: Forbidden"}},
		"group of another API group":          {rbacv1.Subject{Kind: "Group", APIGroup: "example.com", Name: "g"}, []string{at + "apiGroup: Unsupported value"}},
		"group without a name":                {rbacv1.Subject{Kind: "Group", APIGroup: rbacv1.GroupName}, []string{at + "name: Required value"}},
		"service account with an API group":   {rbacv1.Subject{Kind: "ServiceAccount", APIGroup: rbacv1.GroupName, Namespace: "a", Name: "b"}, []string{at + "apiGroup: Unsupported value"}},
		"service account without a namespace": {rbacv1.Subject{Kind: "ServiceAccount", Name: "b"}, []string{at + "namespace: Required value"}},
		"service account with invalid names":  {rbacv1.Subject{Kind: "ServiceAccount", Namespace: "A", Name: "b:c"}, []string{at + "namespace: Invalid value", at + "name: Invalid value"}},
		"service account without a name":      {rbacv1.Subject{Kind: "ServiceAccount", Namespace: "a"}, []string{at + "name: Required value"}},
		"no kind":                             {rbacv1.Subject{Name: "dave"}, []string{at + "kind: Unsupported value"}},
		"another kind":                        {rbacv1.Subject{Kind: "ManagedServiceAccount", Name: "dave"}, []string{at + "kind: Unsupported value"}},
		"a kind in the wrong case":            {rbacv1.Subject{Kind: "user", APIGroup: rbacv1.GroupName, Name: "dave"}, []string{at + "kind: Unsupported value"}},
		"empty subject":                       {rbacv1.Subject{}, []string{at + "kind: Unsupported value"}},
	} {
		t.Run(name, func(t *testing.T) {
			fieldtest.Check(t, ManagedServiceAccountBinding.New(binding(test.subject)), test.want...)
		})
	}
	fieldtest.Check(t, ManagedServiceAccountBinding.New(binding(slices.Repeat([]rbacv1.Subject{dave}, 1000)...)))
	fieldtest.Check(t, ManagedServiceAccountBinding.New(binding(slices.Repeat([]rbacv1.Subject{nobody}, 1001)...)), "spec.subjects: Too many")
}

func TestBindingUpdate(t *testing.T) {
	const immutable = "spec.ref: Invalid value"
	old := binding(dave)
	fieldtest.Check(t, ManagedServiceAccountBinding.Update(binding(devs, robot), old))
	fieldtest.Check(t, ManagedServiceAccountBinding.Update(binding(), old))
	fieldtest.Check(t, ManagedServiceAccountBinding.Update(binding(dave, nobody), old), "spec.subjects[1].name: Required value")

	other := binding(dave)
	other.Spec.Ref.Name = "admin"
	fieldtest.Check(t, ManagedServiceAccountBinding.Update(other, old), immutable)
	other.Spec.Subjects = []rbacv1.Subject{nobody}
	fieldtest.Check(t, ManagedServiceAccountBinding.Update(other, old), immutable, "spec.subjects[0].name: Required value")
	elsewhere := binding(dave)
	elsewhere.Spec.Ref.Namespace = "cluster2"
	fieldtest.Check(t, ManagedServiceAccountBinding.Update(elsewhere, old), immutable)
}

// Errors in the stored object do not reject changes of other parts.
func TestBindingUpdateIgnoresStoredErrors(t *testing.T) {
	old := binding(nobody, dave)
	labelled := old.DeepCopy()
	labelled.Labels = map[string]string{"team": "blue"}
	fieldtest.Check(t, ManagedServiceAccountBinding.Update(labelled, old))
	fieldtest.Check(t, ManagedServiceAccountBinding.Update(binding(devs, nobody), old))
	fieldtest.Check(t, ManagedServiceAccountBinding.Update(binding(nobody, nobody), old), "spec.subjects[1].name: Required value")
}

// The sample of the proposal sets no API group for users and groups.
func TestProposalSampleIsValid(t *testing.T) {
	b := fromYAML(t, []byte(strings.TrimSpace(`
apiVersion: authentication.open-cluster-management.io/v1alpha1
kind: ManagedServiceAccountBinding
metadata: {namespace: cluster1, name: sample}
spec:
  ref:
    namespace: cluster1
    name: deployer
  subjects:
    - kind: User
      name: dave
    - kind: Group
      name: my-group
    - kind: ServiceAccount
      namespace: ci
      name: robot
`)))
	fieldtest.Check(t, ManagedServiceAccountBinding.New(b))
}

func fromYAML(t *testing.T, data []byte) *authentication.ManagedServiceAccountBinding {
	t.Helper()
	var versioned authenticationv1alpha1.ManagedServiceAccountBinding
	if err := yaml.UnmarshalStrict(data, &versioned); err != nil {
		t.Fatal(err)
	}
	return (*authentication.ManagedServiceAccountBinding)(&versioned)
}
