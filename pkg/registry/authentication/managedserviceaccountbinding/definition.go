// Package managedserviceaccountbinding serves ManagedServiceAccountBindings, and reads them for
// the check of executors.
package managedserviceaccountbinding

import (
	"context"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication"
	authenticationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/validation"
	"open-cluster-management.io/hub-apiserver/pkg/authz/executor"
	"open-cluster-management.io/hub-apiserver/pkg/quota"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

const resource = "managedserviceaccountbindings"

// Options configure ManagedServiceAccountBindings.
type Options struct {
	// Authorizer decides whether a caller may bind an account.
	Authorizer authorizer.Authorizer
	// Bindings receives the store. It may be nil.
	Bindings *Bindings
}

// Definition returns the row of ManagedServiceAccountBindings.
func Definition(o Options) definition.Resource {
	if o.Bindings == nil {
		o.Bindings = &Bindings{}
	}
	return definition.Resource{
		Name: resource, Singular: "managedserviceaccountbinding", Kind: "ManagedServiceAccountBinding",
		ShortNames: []string{"msab"}, Categories: []string{"ocm"},
		Versions: []schema.GroupVersion{authenticationv1alpha1.SchemeGroupVersion},
		Strategy: &definition.Strategy[*authentication.ManagedServiceAccountBinding]{
			PrepareForCreate: func(_ context.Context, b *authentication.ManagedServiceAccountBinding) { defaultNamespace(b) },
			PrepareForUpdate: func(_ context.Context, b, _ *authentication.ManagedServiceAccountBinding) { defaultNamespace(b) },
			Rules:            validation.ManagedServiceAccountBinding,
			Warnings: func(b *authentication.ManagedServiceAccountBinding) []string {
				if len(b.Spec.Subjects) > 0 {
					return nil
				}
				return []string{"spec.subjects: the list is empty, so the binding grants nothing"}
			},
		},
		Wrap: definition.Guard[*authentication.ManagedServiceAccountBinding](func(ctx context.Context, b, old *authentication.ManagedServiceAccountBinding) error {
			if old != nil && equality.Semantic.DeepEqual(b.Spec, old.Spec) {
				return nil
			}
			return executor.Bind(ctx, o.Authorizer, b.Namespace, b.Spec.Ref.Name)
		}).Wrap,
		// The check of an executor may read all bindings of a namespace.
		Quota:  quota.Limits{Objects: 1_000, Bytes: 4 << 20},
		Limits: quota.ObjectLimits{SpecBytes: 64 << 10},
		Columns: definition.Columns[*authentication.ManagedServiceAccountBinding]{
			{Name: "Account", Description: "ManagedServiceAccount that ManifestWorks may act as.", Value: func(b *authentication.ManagedServiceAccountBinding) any {
				return b.Spec.Ref.Name
			}},
			{Name: "Subjects", Description: "Number of users, groups and service accounts of the hub that may use the account.", Value: func(b *authentication.ManagedServiceAccountBinding) any {
				return int64(len(b.Spec.Subjects))
			}},
			subjectColumn("Users", "Users of the hub that may use the account.", rbacv1.UserKind),
			subjectColumn("Groups", "Groups of the hub that may use the account.", rbacv1.GroupKind),
			subjectColumn("Service Accounts", "Service accounts of the hub that may use the account.", rbacv1.ServiceAccountKind),
		},
		Stores: map[string]func(*definition.REST){resource: o.Bindings.store.Set},
	}
}

// defaultNamespace sets the namespace of the account to the namespace of the binding if it is
// empty.
func defaultNamespace(b *authentication.ManagedServiceAccountBinding) {
	if b.Spec.Ref.Namespace == "" {
		b.Spec.Ref.Namespace = b.Namespace
	}
}

// subjectColumn returns a column of the subjects of a kind.
func subjectColumn(name, description, kind string) definition.Column[*authentication.ManagedServiceAccountBinding] {
	return definition.Column[*authentication.ManagedServiceAccountBinding]{
		Name: name, Description: description, Wide: true,
		Value: func(b *authentication.ManagedServiceAccountBinding) any {
			var names []string
			for _, subject := range b.Spec.Subjects {
				switch {
				case subject.Kind != kind:
				case subject.Namespace != "":
					names = append(names, subject.Namespace+"/"+subject.Name)
				default:
					names = append(names, subject.Name)
				}
			}
			slices.Sort(names)
			return strings.Join(slices.Compact(names), ", ")
		},
	}
}
