package serviceaccount

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// readSecret reads the Secret of an account and returns its ownership. The agent is allowed to
// create Secrets with any name, but to read only Secrets that it created.
func (c *Controller) readSecret(ctx context.Context, owner *v1beta1.ManagedServiceAccount, known bool) (*corev1.Secret, ownership, error) {
	secrets := c.HubSecrets.CoreV1().Secrets(c.ClusterName)
	secret, err := secrets.Get(ctx, owner.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		return secret, ownershipOf(secret, owner, known, subject(c.Namespace, owner.Name)), nil
	case apierrors.IsNotFound(err):
		return nil, absent, nil
	case !apierrors.IsForbidden(err):
		return nil, unread, fmt.Errorf("get Secret: %w", err)
	}
	// A dry run shows whether the Secret exists.
	_, err = secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: owner.Name}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil:
		return nil, absent, nil
	case apierrors.IsAlreadyExists(err):
		return nil, hidden, nil
	}
	return nil, unread, fmt.Errorf("create Secret: %w", err)
}

func (c *Controller) writeSecret(ctx context.Context, secret *corev1.Secret) (*corev1.Secret, error) {
	secrets := c.HubSecrets.CoreV1().Secrets(c.ClusterName)
	if secret.ResourceVersion == "" {
		created, err := secrets.Create(ctx, secret, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			err = fmt.Errorf("create Secret: %w", err)
		}
		return created, err
	}
	updated, err := secrets.Update(ctx, secret, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil, reconcile.ErrOutdated
	}
	if err != nil {
		err = fmt.Errorf("update Secret: %w", err)
	}
	return updated, err
}
