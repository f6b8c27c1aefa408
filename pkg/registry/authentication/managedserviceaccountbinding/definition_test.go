package managedserviceaccountbinding

import (
	"context"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

func binding(subjects ...rbacv1.Subject) *authentication.ManagedServiceAccountBinding {
	return &authentication.ManagedServiceAccountBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "deployers"},
		Spec:       authentication.ManagedServiceAccountBindingSpec{Ref: authentication.ManagedServiceAccountReference{Name: "deployer"}, Subjects: subjects},
	}
}

func TestNamespaceOfTheAccount(t *testing.T) {
	row := Definition(Options{})
	strategy := row.Strategy.(*definition.Strategy[*authentication.ManagedServiceAccountBinding])

	left := binding()
	strategy.PrepareForCreate(context.Background(), left)
	if left.Spec.Ref.Namespace != "cluster1" {
		t.Errorf("left out, it is %q", left.Spec.Ref.Namespace)
	}
	update := binding()
	strategy.PrepareForUpdate(context.Background(), update, left)
	if errs := strategy.ValidateUpdate(update, left); len(errs) > 0 {
		t.Errorf("left out of an update: %v", errs)
	}
	other := binding()
	other.Spec.Ref.Namespace = "cluster2"
	strategy.PrepareForCreate(context.Background(), other)
	if errs := strategy.Validate(other); len(errs) != 1 || errs[0].Field != "spec.ref.namespace" {
		t.Errorf("another one: %v", errs)
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
		cells = append(cells, column.Value(b))
	}
	if want := []any{"deployer", int64(5), "dave, erin", "my-group", "ci/robot"}; !slices.Equal(cells, want) {
		t.Errorf("got %q, not %q", cells, want)
	}
}

// Until they are served, nobody knows what bindings there are: that is not none.
func TestBindingsBeforeTheyAreServed(t *testing.T) {
	if bindings, err := (&Bindings{}).Bindings(t.Context(), "cluster1"); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("got %v, %v", bindings, err)
	}
}
