package serviceaccount

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/hub-apiserver/pkg/agent/restored"
	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

const (
	// OwnerUIDAnnotation is the UID of the ManagedServiceAccount of a ServiceAccount. A
	// ManagedServiceAccount that is deleted and created again gets a new ServiceAccount, so
	// that old tokens become invalid even if the agent missed the deletion.
	OwnerUIDAnnotation = "authentication.open-cluster-management.io/managed-serviceaccount-uid"
	// SourceAnnotation describes the source of a ServiceAccount for human readers.
	SourceAnnotation = "authentication.open-cluster-management.io/source"
	// RequestAnnotation contains the request for the token in a Secret on the hub, in JSON.
	RequestAnnotation = "authentication.open-cluster-management.io/token-request"
)

// Identity returns the value of ManagedServiceAccountLabel on the ServiceAccounts of an agent.
// It distinguishes agents of several hubs, or of several registrations with one hub, on one
// managed cluster.
func Identity(agentID, clusterName string) string {
	sum := sha256.Sum256([]byte(agentID + "/" + clusterName))
	return hex.EncodeToString(sum[:])[:40]
}

type foreignError struct{ message string }

func (e *foreignError) Error() string { return e.message }

type missingError struct{ error }

func (e *missingError) Unwrap() error { return e.error }

// ensureAccount returns the ServiceAccount of a ManagedServiceAccount. It creates or labels the
// ServiceAccount if necessary.
func (c *Controller) ensureAccount(ctx context.Context, st *accountState, owner *v1beta1.ManagedServiceAccount) (*corev1.ServiceAccount, error) {
	if !c.accountInformer.HasSynced() {
		return nil, fmt.Errorf("cannot watch the ServiceAccounts of namespace %s: %w", c.Namespace, c.watchError())
	}
	live := c.knownAccount(owner.Name)
	if live == nil && st.unlabelled {
		// A ServiceAccount without the label is not watched. A read is cheaper than an attempt to
		// create it.
		var err error
		if live, err = c.readAccount(ctx, owner.Name); err != nil {
			return nil, err
		}
		st.unlabelled = live != nil
	}
	if live == nil {
		created, err := c.createAccount(ctx, st, owner)
		if !apierrors.IsAlreadyExists(err) {
			return created, err
		}
		if live, err = c.readAccount(ctx, owner.Name); err != nil {
			return nil, err
		}
		if live == nil {
			return nil, reconcile.ErrOutdated
		}
		_, labelled := live.Labels[v1beta1.ManagedServiceAccountLabel]
		st.unlabelled = !labelled
	}
	switch judgeAccount(live, c.Identity, owner.UID, c.recordedUID(owner), owner.Status.TokenSecretRef != nil) {
	case usable:
		return live, nil
	case unclaimed:
		return c.claimAccount(ctx, st, owner, live)
	case terminating:
		return nil, &missingError{errors.New("the ServiceAccount is being deleted; it is created again after that")}
	case outlived:
		if err := c.deleteAccount(ctx, live); err != nil {
			return nil, err
		}
		created, err := c.createAccount(ctx, st, owner)
		if apierrors.IsAlreadyExists(err) {
			if found, err := c.readAccount(ctx, owner.Name); err == nil && (found == nil || found.UID != live.UID) {
				return nil, reconcile.ErrOutdated // the informer does not contain the new ServiceAccount yet
			}
			// The ServiceAccount has a finalizer.
			return nil, &missingError{errors.New("the ServiceAccount of a deleted ManagedServiceAccount with the same name still exists")}
		}
		return created, err
	default:
		return nil, &foreignError{c.describeForeign(live)}
	}
}

// recordedUID returns the UID of the ServiceAccount in the status.
func (c *Controller) recordedUID(owner *v1beta1.ManagedServiceAccount) types.UID {
	if ref := owner.Status.ServiceAccountRef; ref != nil && ref.Namespace == c.Namespace && ref.Name == owner.Name {
		return ref.UID
	}
	return ""
}

func (c *Controller) describeForeign(account *corev1.ServiceAccount) string {
	owner := "is not managed by this agent"
	if other := account.Labels[v1beta1.ManagedServiceAccountLabel]; other != "" {
		owner = fmt.Sprintf("belongs to another owner, %q", other)
	}
	return fmt.Sprintf("ServiceAccount %s/%s on the managed cluster %s. Delete it there, or transfer it: kubectl label serviceaccount -n %s %s %s=%s --overwrite",
		account.Namespace, account.Name, owner, account.Namespace, account.Name, v1beta1.ManagedServiceAccountLabel, c.Identity)
}

func (c *Controller) knownAccount(name string) *corev1.ServiceAccount {
	account, _ := c.accounts.ServiceAccounts(c.Namespace).Get(name) // nil if the informer does not contain it
	return account
}

func (c *Controller) readAccount(ctx context.Context, name string) (*corev1.ServiceAccount, error) {
	live, err := reconcile.OrNil(c.Managed.CoreV1().ServiceAccounts(c.Namespace).Get(ctx, name, metav1.GetOptions{}))
	if err != nil {
		return nil, fmt.Errorf("get ServiceAccount: %w", err)
	}
	return live, nil
}

func (c *Controller) createAccount(ctx context.Context, st *accountState, owner *v1beta1.ManagedServiceAccount) (*corev1.ServiceAccount, error) {
	created, err := c.Managed.CoreV1().ServiceAccounts(c.Namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Name: owner.Name, Namespace: c.Namespace,
		Labels:      map[string]string{v1beta1.ManagedServiceAccountLabel: c.Identity},
		Annotations: c.annotations(owner),
	}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	if err != nil {
		return nil, &missingError{fmt.Errorf("create ServiceAccount: %w", err)}
	}
	// No Secret can contain a token of the new ServiceAccount yet.
	st.unstored = owner.Status.TokenSecretRef == nil && nudge(&owner.Status) == ""
	return created, nil
}

func (c *Controller) annotations(owner *v1beta1.ManagedServiceAccount) map[string]string {
	return map[string]string{
		OwnerUIDAnnotation: string(owner.UID),
		SourceAnnotation:   fmt.Sprintf("cluster %s of hub %s", c.ClusterName, c.HubHost),
	}
}

func (c *Controller) claimAccount(ctx context.Context, st *accountState, owner *v1beta1.ManagedServiceAccount, account *corev1.ServiceAccount) (*corev1.ServiceAccount, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": account.UID, "resourceVersion": account.ResourceVersion,
		"labels":      map[string]string{v1beta1.ManagedServiceAccountLabel: c.Identity},
		"annotations": c.annotations(owner),
	}})
	if err != nil {
		return nil, err
	}
	patched, err := c.Managed.CoreV1().ServiceAccounts(account.Namespace).Patch(ctx, account.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil, reconcile.ErrOutdated
	}
	if err != nil {
		return nil, fmt.Errorf("label ServiceAccount: %w", err)
	}
	st.unlabelled = false
	return patched, nil
}

// deleteAccount deletes a ServiceAccount of this agent, which revokes its tokens.
func (c *Controller) deleteAccount(ctx context.Context, account *corev1.ServiceAccount) error {
	err := c.Managed.CoreV1().ServiceAccounts(account.Namespace).Delete(ctx, account.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &account.UID},
	})
	// A conflict is caused by the UID precondition: another ServiceAccount has the name.
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete ServiceAccount: %w", err)
	}
	return nil
}

// revoke deletes the ServiceAccount of a ManagedServiceAccount that does not exist or is being deleted,
// which revokes its tokens. It reports whether the ServiceAccount stays, because a restored hub does not
// know the ManagedServiceAccount. seen is true if the session has seen it on the hub.
func (c *Controller) revoke(ctx context.Context, name string, deleting, seen bool) (retained bool, err error) {
	if !c.accountInformer.HasSynced() {
		return false, nil // the informer triggers a pass for each ServiceAccount
	}
	ref := restored.Ref{Resource: restored.ManagedServiceAccounts, Name: name}
	account := c.knownAccount(name)
	if account == nil || account.DeletionTimestamp != nil || account.Labels[v1beta1.ManagedServiceAccountLabel] != c.Identity {
		c.Restored.Release(ref)
		return false, nil
	}
	if !deleting {
		if gone, err := c.ownerGone(ctx, name); !gone {
			return false, err
		}
		if keeps, err := c.Restored.Keeps(ctx, seen); err != nil {
			return false, err
		} else if keeps {
			c.Restored.Retain(ref, fmt.Sprintf("ServiceAccount %s/%s", account.Namespace, name))
			return true, nil
		}
		// The ManagedServiceAccount may have been created just before the restore was confirmed.
		if gone, err := c.ownerGone(ctx, name); !gone {
			return false, err
		}
	}
	c.Restored.Release(ref)
	return false, c.deleteAccount(ctx, account)
}

// ownerGone reports whether a ManagedServiceAccount does not exist on the hub.
func (c *Controller) ownerGone(ctx context.Context, name string) (bool, error) {
	_, err := c.Hub.AuthenticationV1beta1().ManagedServiceAccounts(c.ClusterName).Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		return false, reconcile.ErrOutdated
	case reconcile.Gone(err, name):
		return true, nil
	}
	return false, fmt.Errorf("get ManagedServiceAccount: %w", err)
}

// cleanFormerNamespace deletes the ServiceAccount in the previously configured namespace of the
// agent.
func (c *Controller) cleanFormerNamespace(ctx context.Context, ref *v1beta1.ServiceAccountReference) error {
	if ref == nil || ref.Namespace == "" || ref.Namespace == c.Namespace {
		return nil
	}
	account, err := c.Managed.CoreV1().ServiceAccounts(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err == nil && (account.UID != ref.UID || account.Labels[v1beta1.ManagedServiceAccountLabel] != c.Identity) {
		return nil
	}
	if err == nil {
		err = c.deleteAccount(ctx, account)
	}
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		// Without access to the previous namespace, an administrator has to delete the
		// ServiceAccount.
		return nil
	}
	return err
}

// RemoveAll deletes all ServiceAccounts of this agent, which revokes their tokens. It sends no
// request to the hub. It returns an error as long as ServiceAccounts remain, and must then be
// called again. The controller must not run at the same time.
func (c *Controller) RemoveAll(ctx context.Context) error {
	accounts, err := c.Managed.CoreV1().ServiceAccounts(c.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set{v1beta1.ManagedServiceAccountLabel: c.Identity}.String(),
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
