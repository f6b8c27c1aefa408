package tokens

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

// ListOptions choose accounts.
type ListOptions struct {
	// Name of the accounts; any if empty.
	Name string
	// SetNamespace chooses the accounts that replicate the one of that name in a
	// namespace that is bound to sets of clusters. Any if empty.
	SetNamespace string
}

// Account is a ManagedServiceAccount on one managed cluster.
type Account struct {
	// Cluster is the managed cluster, and the account's namespace on the hub.
	Cluster string
	// Name is that of the account and of its Secret.
	Name string
	// SetNamespace is the namespace of the account that this one replicates; empty
	// for an account of its own.
	SetNamespace string
	// ServiceAccount on the managed cluster, where the agent has reported it.
	ServiceAccount types.NamespacedName
	// Ready tells whether the Secret has a token that has not expired.
	Ready bool
	// Message says to a person why the account is not ready.
	Message string
	// Expires is when the reported token expires; zero if it is not known.
	Expires time.Time
}

// List returns the accounts on managed clusters, ready or not, by cluster and
// name. An account that is replicated to the clusters of sets is not listed
// itself, since it has no token; those that replicate it are.
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

// onCluster tells whether an account is on a managed cluster, rather than one that
// is replicated, or one where there are no clusters.
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
		out.Message = "The agent of the cluster has not reported on the account."
	case reported.Status != metav1.ConditionTrue:
		out.Message = reported.Message
	case !out.Expires.IsZero() && !out.Expires.After(now):
		out.Message = "The token has expired."
	default:
		out.Ready = true
	}
	return out
}
