package clusterpermission

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

// publicAgentNamespace is the default namespace in which agents of the upstream add-on
// create ServiceAccounts.
const publicAgentNamespace = "open-cluster-management-agent-addon"

// PublicAgent describes the agent of the upstream add-on on the managed cluster, which does
// not report the namespace of its ServiceAccounts. The zero value is an agent with default
// configuration.
type PublicAgent struct {
	// Namespace is the namespace of its ServiceAccounts. If it is empty, the default applies.
	Namespace string
	// Absent is the reason why the cluster has no such agent, or empty if it has one. If it is
	// set, accounts that only such an agent has reported have no ServiceAccount.
	Absent string
}

// Accounts are the ManagedServiceAccounts of one namespace, by name.
type Accounts map[string]*authenticationv1beta1.ManagedServiceAccount

// AccountNames returns the names of the ManagedServiceAccounts that subjects of the
// delivered or the current spec of a ClusterPermission refer to, sorted and without
// duplicates. They are in the namespace of the ClusterPermission.
func AccountNames(cp *v1alpha1.ClusterPermission) []string {
	var names []string
	for _, spec := range specs(cp) {
		for _, s := range spec.Subjects() {
			if isAccount(s) {
				names = append(names, s.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func isAccount(s rbacv1.Subject) bool {
	return s.APIGroup == v1alpha1.ManagedServiceAccountGroup && s.Kind == v1alpha1.ManagedServiceAccountKind
}

// ServiceAccount returns the ServiceAccount of a ManagedServiceAccount on the managed
// cluster, or the reason why it has none.
func ServiceAccount(account *authenticationv1beta1.ManagedServiceAccount, agent PublicAgent) (name types.NamespacedName, absent string) {
	status := &account.Status
	switch {
	case account.DeletionTimestamp != nil:
		return name, fmt.Sprintf("ManagedServiceAccount %s is being deleted", account.Name)
	case status.ServiceAccountRef != nil:
		return types.NamespacedName{Namespace: status.ServiceAccountRef.Namespace, Name: status.ServiceAccountRef.Name}, ""
	case reportedByPublicAgent(status) && agent.Absent != "":
		return name, fmt.Sprintf("ManagedServiceAccount %s has no ServiceAccount on the cluster: %s", account.Name, agent.Absent)
	case reportedByPublicAgent(status):
		return types.NamespacedName{Namespace: cmp.Or(agent.Namespace, publicAgentNamespace), Name: account.Name}, ""
	}
	if present := meta.FindStatusCondition(status.Conditions, authenticationv1beta1.ConditionAllServiceAccountPresent); present != nil && present.Status == metav1.ConditionFalse {
		return name, fmt.Sprintf("ManagedServiceAccount %s has no ServiceAccount on the cluster (%s)", account.Name, present.Reason)
	}
	return name, fmt.Sprintf("ManagedServiceAccount %s has not been reported by the agent of this cluster yet", account.Name)
}

// reportedByPublicAgent reports whether an agent of the upstream add-on has reported the
// token. Unlike the agent of this repository, it does not set
// ConditionAllServiceAccountPresent.
func reportedByPublicAgent(status *authenticationv1beta1.ManagedServiceAccountStatus) bool {
	return meta.FindStatusCondition(status.Conditions, authenticationv1beta1.ConditionAllServiceAccountPresent) == nil &&
		(status.TokenSecretRef != nil || meta.IsStatusConditionTrue(status.Conditions, authenticationv1beta1.ConditionTokenReported))
}

// account returns the ServiceAccount on the managed cluster for a subject of kind
// ManagedServiceAccount, or the reason why there is none. It ignores the namespace of the
// subject, because the account is in the namespace of the ClusterPermission.
func (r *renderer) account(of rbacv1.Subject) (delivered subject, absent string) {
	account := r.in.Accounts[of.Name]
	if account == nil {
		return delivered, fmt.Sprintf("ManagedServiceAccount %s does not exist", of.Name)
	}
	name, absent := ServiceAccount(account, r.in.PublicAgent)
	return subject{Kind: rbacv1.ServiceAccountKind, Namespace: name.Namespace, Name: name.Name}, absent
}

// LargestAccounts returns accounts for which the rendered ManifestWork has its maximum size.
// If a ClusterPermission renders with them, it also renders with the reported accounts.
func LargestAccounts(cp *v1alpha1.ClusterPermission) Accounts {
	accounts := Accounts{}
	for _, name := range AccountNames(cp) {
		account := &authenticationv1beta1.ManagedServiceAccount{}
		account.Status.ServiceAccountRef = &authenticationv1beta1.ServiceAccountReference{
			Namespace: strings.Repeat("n", validation.DNS1123LabelMaxLength), Name: name,
		}
		accounts[name] = account
	}
	return accounts
}
