package managedserviceaccountbinding

import (
	"context"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication"
	authenticationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

func binding(subjects ...rbacv1.Subject) *authentication.ManagedServiceAccountBinding {
	return &authentication.ManagedServiceAccountBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "deployers"},
		Spec:       authenticationv1alpha1.ManagedServiceAccountBindingSpec{Ref: authenticationv1alpha1.ManagedServiceAccountReference{Name: "deployer"}, Subjects: subjects},
	}
}

func TestDefaultNamespace(t *testing.T) {
	row := Definition(Options{})
	strategy := row.Strategy.(*definition.Strategy[*authentication.ManagedServiceAccountBinding])

	created := binding()
	strategy.PrepareForCreate(context.Background(), created)
	if created.Spec.Ref.Namespace != "cluster1" {
		t.Errorf("PrepareForCreate() sets spec.ref.namespace = %q, want %q", created.Spec.Ref.Namespace, "cluster1")
	}
	update := binding()
	strategy.PrepareForUpdate(context.Background(), update, created)
	if errs := strategy.Rules.Update(update, created); len(errs) > 0 {
		t.Errorf("Rules.Update() without a namespace = %v, want no errors", errs)
	}
	other := binding()
	other.Spec.Ref.Namespace = "cluster2"
	strategy.PrepareForCreate(context.Background(), other)
	if errs := strategy.Rules.New(other); len(errs) != 1 || errs[0].Field != "spec.ref.namespace" {
		t.Errorf("Validate() with another namespace = %v, want one error of spec.ref.namespace", errs)
	}
}

func TestColumns(t *testing.T) {
	b := binding(
		rbacv1.Subject{Kind: rbacv1.UserKind, Name: "erin"}, rbacv1.Subject{Kind: rbacv1.UserKind, Name: "dave"}, rbacv1.Subject{Kind: rbacv1.UserKind, Name: "dave"},
		rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "my-group"},
		rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "ci", Name: "robot"},
	)
	var cells []any
	for _, column := range Definition(Options{}).Columns.(definition.Columns[*authentication.ManagedServiceAccountBinding]) {
		cells = append(cells, column.Cell(b))
	}
	if want := []any{"deployer", int64(5), "dave, erin", "my-group", "ci/robot"}; !slices.Equal(cells, want) {
		t.Errorf("cells = %q, want %q", cells, want)
	}
}

// TestBindingsBeforeTheyAreServed checks that unknown bindings are an error and not an empty list.
func TestBindingsBeforeTheyAreServed(t *testing.T) {
	if bindings, err := (&Bindings{}).Bindings(t.Context(), "cluster1"); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("Bindings() = %v, %v, want status 503", bindings, err)
	}
}
