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

// RemoveAll deletes the ServiceAccounts that were made for the hub, and so revokes their
// tokens, without asking it. It returns an error as long as one is left, and is then to be
// called again. The controller must not run meanwhile.
func (c *Controller) RemoveAll(ctx context.Context) error {
	accounts, err := c.managed.CoreV1().ServiceAccounts(c.namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set{v1beta1.ManagedServiceAccountLabel: c.identity}.String(),
	})
	if apierrors.IsForbidden(err) {
		// An agent that may not even see them has made none.
		return nil
	}
	if err != nil {
		return fmt.Errorf("list ServiceAccounts: %w", err)
	}
	var errs []error
	for i := range accounts.Items {
		account := &accounts.Items[i]
		if account.DeletionTimestamp != nil {
			// A finalizer of somebody else keeps it; its tokens have ended.
			continue
		}
		if err := c.deleteAccount(ctx, account); err != nil {
			errs = append(errs, fmt.Errorf("ServiceAccount %s: %w", account.Name, err))
		}
	}
	return errors.Join(errs...)
}
