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
	"k8s.io/utils/ptr"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

// publicAgentNamespace is where the agents of the public addon keep
// ServiceAccounts unless told otherwise.
const publicAgentNamespace = "open-cluster-management-agent-addon"

// PublicAgent is the public addon's agent on the managed cluster. The zero value
// is one that was not told where to keep ServiceAccounts.
type PublicAgent struct {
	// Namespace is where it keeps ServiceAccounts; empty for its default.
	Namespace string
	// Absent says to a person why there is no such agent. Then an account that only
	// such an agent has reported has no ServiceAccount.
	Absent string
}

// Accounts are the ManagedServiceAccounts of one namespace, by name.
type Accounts map[string]*authenticationv1beta1.ManagedServiceAccount

// AccountNames are the ManagedServiceAccounts that subjects of a ClusterPermission
// stand for, in what is delivered of it or in its present spec; each once and
// sorted. They are in its namespace.
func AccountNames(cp *v1alpha1.ClusterPermission) []string {
	var names []string
	add := func(subject *rbacv1.Subject, subjects []rbacv1.Subject) {
		if subject != nil && isAccount(*subject) {
			names = append(names, subject.Name)
		}
		for _, s := range subjects {
			if isAccount(s) {
				names = append(names, s.Name)
			}
		}
	}
	for _, spec := range specs(cp) {
		if binding := spec.ClusterRoleBinding; binding != nil {
			add(binding.Subject, binding.Subjects)
		}
		for _, binding := range ptr.Deref(spec.ClusterRoleBindings, nil) {
			add(binding.Subject, binding.Subjects)
		}
		for _, binding := range ptr.Deref(spec.RoleBindings, nil) {
			add(binding.Subject, binding.Subjects)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func isAccount(s rbacv1.Subject) bool {
	return s.APIGroup == v1alpha1.ManagedServiceAccountGroup && s.Kind == v1alpha1.ManagedServiceAccountKind
}

// ServiceAccount is what a ManagedServiceAccount is on the managed cluster, as
// far as it is known there. Otherwise absent says to a person why not.
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

// reportedByPublicAgent tells a token that the public addon's agent has reported,
// which says so without saying of what, from one of ours, which always says of
// what unless the ServiceAccount is not its own.
func reportedByPublicAgent(status *authenticationv1beta1.ManagedServiceAccountStatus) bool {
	return meta.FindStatusCondition(status.Conditions, authenticationv1beta1.ConditionAllServiceAccountPresent) == nil &&
		(status.TokenSecretRef != nil || meta.IsStatusConditionTrue(status.Conditions, authenticationv1beta1.ConditionTokenReported))
}

// account gives the subject that an account is on the managed cluster. Where the
// given subject says it is does not matter: on the hub it is in the namespace of
// the ClusterPermission, on the cluster it is where the agent has put it.
func (r *renderer) account(given rbacv1.Subject) (placed subject, absent string) {
	account := r.in.Accounts[given.Name]
	if account == nil {
		return placed, fmt.Sprintf("ManagedServiceAccount %s does not exist", given.Name)
	}
	name, absent := ServiceAccount(account, r.in.PublicAgent)
	return subject{Kind: rbacv1.ServiceAccountKind, Namespace: name.Namespace, Name: name.Name}, absent
}

// LargestAccounts are accounts such that the rendered work is as large as it can
// become. What is accepted with them need not be refused when they are reported.
func LargestAccounts(cp *v1alpha1.ClusterPermission) Accounts {
	accounts := Accounts{}
	for _, name := range AccountNames(cp) {
		accounts[name] = &authenticationv1beta1.ManagedServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Namespace: cp.Namespace, Name: name},
			Status: authenticationv1beta1.ManagedServiceAccountStatus{ServiceAccountRef: &authenticationv1beta1.ServiceAccountReference{
				Namespace: strings.Repeat("n", validation.DNS1123LabelMaxLength), Name: name,
			}},
		}
	}
	return accounts
}
