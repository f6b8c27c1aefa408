package serviceaccount

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
)

// RemoveAll deletes all ServiceAccounts of this agent, which revokes their tokens. It sends no
// request to the hub. It returns an error as long as ServiceAccounts remain, and must then be
// called again. The controller must not run at the same time.
func (c *Controller) RemoveAll(ctx context.Context) error {
	accounts, err := c.managed.CoreV1().ServiceAccounts(c.namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set{v1beta1.ManagedServiceAccountLabel: c.identity}.String(),
	})
	if apierrors.IsForbidden(err) {
		// Without this permission, the agent has created no ServiceAccounts.
		return nil
	}
	if err != nil {
		return fmt.Errorf("list ServiceAccounts: %w", err)
	}
	var errs []error
	for i := range accounts.Items {
		account := &accounts.Items[i]
		if account.DeletionTimestamp != nil {
			// The ServiceAccount has a finalizer of another component. Its tokens are invalid.
			continue
		}
		if err := c.deleteAccount(ctx, account); err != nil {
			errs = append(errs, fmt.Errorf("ServiceAccount %s: %w", account.Name, err))
		}
	}
	return errors.Join(errs...)
}
