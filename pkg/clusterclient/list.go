package clusterclient

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/pager"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
)

// ListOptions select accounts.
type ListOptions struct {
	// Name is the name of the accounts. If it is empty, accounts of any name are selected.
	Name string
	// SetNamespace selects the replicas of accounts in this namespace, which is bound to
	// cluster sets. If it is empty, all accounts are selected.
	SetNamespace string
}

// Account is a ManagedServiceAccount on one managed cluster.
type Account struct {
	// Cluster is the managed cluster, and the account's namespace on the hub.
	Cluster string
	// Name is the name of the account and of its Secret.
	Name string
	// SetNamespace is the namespace of the account of cluster sets that this account replicates. It is empty for other
	// accounts.
	SetNamespace string
	// ServiceAccount is the ServiceAccount on the managed cluster. It is empty until the agent has reported it.
	ServiceAccount types.NamespacedName
	// Ready reports whether the Secret contains a token that has not expired.
	Ready bool
	// Message is a human-readable reason why the account is not ready.
	Message string
	// Expires is the time at which the reported token expires, or zero if it is unknown.
	Expires time.Time
}

// List returns the accounts on managed clusters, ready or not, ordered by cluster and name. It does not return the
// accounts of cluster sets, which have no token. It returns their replicas.
func (h *Hub) List(ctx context.Context, options ListOptions) ([]Account, error) {
	selected := metav1.ListOptions{}
	if options.Name != "" {
		selected.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, options.Name).String()
	}
	if options.SetNamespace != "" {
		selected.LabelSelector = labels.Set{authenticationv1beta1.ParentNamespaceLabel: options.SetNamespace}.String()
	}
	var out []Account
	pages := pager.New(func(ctx context.Context, page metav1.ListOptions) (runtime.Object, error) {
		return h.accounts.ManagedServiceAccounts(metav1.NamespaceAll).List(ctx, page)
	})
	err := pages.EachListItem(ctx, selected, func(obj runtime.Object) error {
		account := obj.(*authenticationv1beta1.ManagedServiceAccount)
		if onCluster(account) {
			out = append(out, describe(account, time.Now()))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing ManagedServiceAccounts: %w", err)
	}
	return out, nil
}

// onCluster reports whether an account is on a managed cluster, and is not an account of cluster sets.
func onCluster(account *authenticationv1beta1.ManagedServiceAccount) bool {
	return account.Status.Clusters == nil &&
		!meta.IsStatusConditionFalse(account.Status.Conditions, authenticationv1beta1.ConditionNamespaceManaged)
}

func describe(account *authenticationv1beta1.ManagedServiceAccount, now time.Time) Account {
	status := &account.Status
	out := Account{
		Cluster:      account.Namespace,
		Name:         account.Name,
		SetNamespace: account.Labels[authenticationv1beta1.ParentNamespaceLabel],
	}
	if ref := status.ServiceAccountRef; ref != nil {
		out.ServiceAccount = types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	}
	if status.ExpirationTimestamp != nil {
		out.Expires = status.ExpirationTimestamp.Time
	}
	reported := meta.FindStatusCondition(status.Conditions, authenticationv1beta1.ConditionTokenReported)
	switch {
	case account.DeletionTimestamp != nil:
		out.Message = "The account is being deleted."
	case reported == nil:
		out.Message = "The agent of the cluster has not reported the account."
	case reported.Status != metav1.ConditionTrue:
		out.Message = reported.Message
	case !out.Expires.IsZero() && !out.Expires.After(now):
		out.Message = "The token has expired."
	default:
		out.Ready = true
	}
	return out
}
