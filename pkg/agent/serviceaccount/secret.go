package serviceaccount

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
)

// errAgain is for what is worth another try, since somebody else was faster.
var errAgain = errors.New("another writer was faster")

// readSecret finds out where the Secret of an account is. The agent may create
// Secrets of any name, but read only those that the hub has seen it make.
func (c *Controller) readSecret(ctx context.Context, owner *v1beta1.ManagedServiceAccount, known bool) (*corev1.Secret, place, error) {
	secrets := c.hubSecrets.CoreV1().Secrets(c.clusterName)
	secret, err := secrets.Get(ctx, owner.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		return secret, placeOf(secret, owner, known, subject(c.namespace, owner.Name)), nil
	case apierrors.IsNotFound(err):
		return nil, absent, nil
	case !apierrors.IsForbidden(err):
		return nil, unread, fmt.Errorf("get Secret: %w", err)
	}
	// Whether it exists shows without writing anything.
	_, err = secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: owner.Name}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil:
		return nil, absent, nil
	case apierrors.IsAlreadyExists(err):
		return nil, hidden, nil
	}
	return nil, unread, fmt.Errorf("create Secret: %w", err)
}

// writeSecret stores a Secret: over the version that was read, or as a new one.
func (c *Controller) writeSecret(ctx context.Context, secret *corev1.Secret) (*corev1.Secret, error) {
	secrets := c.hubSecrets.CoreV1().Secrets(c.clusterName)
	if secret.ResourceVersion == "" {
		created, err := secrets.Create(ctx, secret, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			err = fmt.Errorf("create Secret: %w", err)
		}
		return created, err
	}
	updated, err := secrets.Update(ctx, secret, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil, errAgain
	}
	if err != nil {
		err = fmt.Errorf("update Secret: %w", err)
	}
	return updated, err
}
