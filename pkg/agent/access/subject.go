package access

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// audience is which ServiceAccounts the subjects of a binding are. The zero
// audience is nobody.
type audience struct {
	everyone   bool
	namespaces sets.Set[string]
	accounts   sets.Set[types.NamespacedName]
}

// audienceOf returns the audience of a binding in a namespace, which is empty for
// a ClusterRoleBinding.
func audienceOf(subjects []rbacv1.Subject, namespace string) audience {
	a := audience{namespaces: sets.New[string](), accounts: sets.New[types.NamespacedName]()}
	for _, subject := range subjects {
		switch subject.Kind {
		case rbacv1.ServiceAccountKind:
			account := types.NamespacedName{Namespace: subject.Namespace, Name: subject.Name}
			if account.Namespace == "" {
				account.Namespace = namespace
			}
			if account.Namespace != "" {
				a.accounts.Insert(account)
			}
		case rbacv1.UserKind:
			if namespace, name, err := serviceaccount.SplitUsername(subject.Name); err == nil {
				a.accounts.Insert(types.NamespacedName{Namespace: namespace, Name: name})
			}
		case rbacv1.GroupKind:
			a.insertGroup(subject.Name)
		}
	}
	return a
}

func (a *audience) insertGroup(group string) {
	if group == user.AllAuthenticated || group == serviceaccount.AllServiceAccountsGroup {
		a.everyone = true
		return
	}
	if namespace, found := strings.CutPrefix(group, serviceaccount.ServiceAccountGroupPrefix); found && namespace != "" {
		a.namespaces.Insert(namespace)
	}
}

func (a audience) includes(account types.NamespacedName) bool {
	return a.everyone || a.namespaces.Has(account.Namespace) || a.accounts.Has(account)
}

func (a audience) nobody() bool {
	return !a.everyone && len(a.namespaces) == 0 && len(a.accounts) == 0
}

func (a audience) equal(b audience) bool {
	return a.everyone == b.everyone && a.namespaces.Equal(b.namespaces) && a.accounts.Equal(b.accounts)
}
