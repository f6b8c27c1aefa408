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
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
)

const (
	// OwnerUIDAnnotation is on the ServiceAccounts of managed clusters: the UID
	// of the ManagedServiceAccount that they were made for. One that is deleted
	// and made again gets another ServiceAccount, so that old tokens end with
	// the old one even if nobody saw the deletion.
	OwnerUIDAnnotation = "authentication.open-cluster-management.io/managed-serviceaccount-uid"
	// SourceAnnotation tells people where a ServiceAccount comes from.
	SourceAnnotation = "authentication.open-cluster-management.io/source"
	// RequestAnnotation is on the Secrets of the hub: what the token in it was
	// asked to be, in JSON.
	RequestAnnotation = "authentication.open-cluster-management.io/token-request"
)

// Identity returns what an agent puts on its ServiceAccounts, as the value of
// ManagedServiceAccountLabel. Agents of several hubs, or several registrations
// with one hub, that share a managed cluster are told apart by it.
func Identity(agentID, clusterName string) string {
	sum := sha256.Sum256([]byte(agentID + "/" + clusterName))
	return hex.EncodeToString(sum[:])[:40]
}

// foreignError is the error of a ServiceAccount that belongs to somebody else.
type foreignError struct{ message string }

func (e *foreignError) Error() string { return e.message }

// missingError is the error of a ServiceAccount that is known not to be there.
type missingError struct{ error }

func (e *missingError) Unwrap() error { return e.error }

// ensureAccount returns the ServiceAccount of a ManagedServiceAccount, which is
// made, or marked as ours again, if necessary.
func (c *Controller) ensureAccount(ctx context.Context, st *accountState, owner *v1beta1.ManagedServiceAccount) (*corev1.ServiceAccount, error) {
	if !c.accountsSynced() {
		return nil, fmt.Errorf("the ServiceAccounts of namespace %s cannot be watched: %w", c.namespace, c.watchError())
	}
	live := c.knownAccount(owner.Name)
	if live == nil && st.unlabelled {
		// There was one that the watch does not show. It is asked for, since an
		// attempt to create it would be a write.
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
			return nil, errAgain
		}
		_, labelled := live.Labels[v1beta1.ManagedServiceAccountLabel]
		st.unlabelled = !labelled
	}
	switch judgeAccount(live, c.identity, owner.UID, c.recordedUID(owner)) {
	case usable:
		return live, nil
	case unclaimed:
		return c.claimAccount(ctx, st, owner, live)
	case terminating:
		return nil, &missingError{errors.New("the ServiceAccount is being deleted; it is made again once it is gone")}
	case outlived:
		if err := c.deleteAccount(ctx, live); err != nil {
			return nil, err
		}
		created, err := c.createAccount(ctx, st, owner)
		if apierrors.IsAlreadyExists(err) {
			// A finalizer keeps it.
			return nil, &missingError{errors.New("the ServiceAccount of a former ManagedServiceAccount with this name is not gone yet")}
		}
		return created, err
	default:
		return nil, &foreignError{c.describeForeign(live)}
	}
}

// recordedUID is the UID that the status has for the ServiceAccount.
func (c *Controller) recordedUID(owner *v1beta1.ManagedServiceAccount) types.UID {
	if ref := owner.Status.ServiceAccountRef; ref != nil && ref.Namespace == c.namespace && ref.Name == owner.Name {
		return ref.UID
	}
	return ""
}

func (c *Controller) describeForeign(account *corev1.ServiceAccount) string {
	whose := "is not managed by this agent"
	if other := account.Labels[v1beta1.ManagedServiceAccountLabel]; other != "" {
		whose = fmt.Sprintf("belongs to another owner, %q", other)
	}
	return fmt.Sprintf("ServiceAccount %s/%s of the managed cluster %s. Delete it there, or hand it over: kubectl label serviceaccount -n %s %s %s=%s --overwrite",
		account.Namespace, account.Name, whose, account.Namespace, account.Name, v1beta1.ManagedServiceAccountLabel, c.identity)
}

// knownAccount returns the ServiceAccount as the watch has it, or as it was just made.
func (c *Controller) knownAccount(name string) *corev1.ServiceAccount {
	c.mu.Lock()
	defer c.mu.Unlock()
	if made := c.made[name]; made != nil {
		return made
	}
	account, err := c.accounts.ServiceAccounts(c.namespace).Get(name)
	if err != nil {
		return nil
	}
	return account
}

// readAccount asks the managed cluster. Nil is for one that does not exist.
func (c *Controller) readAccount(ctx context.Context, name string) (*corev1.ServiceAccount, error) {
	live, err := c.managed.CoreV1().ServiceAccounts(c.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get ServiceAccount: %w", err)
	}
	return live, nil
}

func (c *Controller) createAccount(ctx context.Context, st *accountState, owner *v1beta1.ManagedServiceAccount) (*corev1.ServiceAccount, error) {
	created, err := c.managed.CoreV1().ServiceAccounts(c.namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Name: owner.Name, Namespace: c.namespace,
		Labels:      map[string]string{v1beta1.ManagedServiceAccountLabel: c.identity},
		Annotations: c.annotations(owner),
	}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	if err != nil {
		return nil, &missingError{fmt.Errorf("create ServiceAccount: %w", err)}
	}
	// Nobody has stored a token of it yet.
	st.unstored = owner.Status.TokenSecretRef == nil && nudge(&owner.Status) == ""
	c.mu.Lock()
	defer c.mu.Unlock()
	if cached, err := c.accounts.ServiceAccounts(c.namespace).Get(owner.Name); err != nil || cached.UID != created.UID {
		c.made[owner.Name] = created
	}
	return created, nil
}

func (c *Controller) annotations(owner *v1beta1.ManagedServiceAccount) map[string]string {
	return map[string]string{
		OwnerUIDAnnotation: string(owner.UID),
		SourceAnnotation:   fmt.Sprintf("cluster %s of hub %s", c.clusterName, c.hubHost),
	}
}

// claimAccount puts our marks on a ServiceAccount that is ours.
func (c *Controller) claimAccount(ctx context.Context, st *accountState, owner *v1beta1.ManagedServiceAccount, account *corev1.ServiceAccount) (*corev1.ServiceAccount, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": account.UID, "resourceVersion": account.ResourceVersion,
		"labels":      map[string]string{v1beta1.ManagedServiceAccountLabel: c.identity},
		"annotations": c.annotations(owner),
	}})
	if err != nil {
		return nil, err
	}
	patched, err := c.managed.CoreV1().ServiceAccounts(account.Namespace).Patch(ctx, account.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil, errAgain
	}
	if err != nil {
		return nil, fmt.Errorf("label ServiceAccount: %w", err)
	}
	st.unlabelled = false
	return patched, nil
}

// deleteAccount deletes a ServiceAccount that is ours, and so revokes its tokens.
func (c *Controller) deleteAccount(ctx context.Context, account *corev1.ServiceAccount) error {
	c.forget(account)
	err := c.managed.CoreV1().ServiceAccounts(account.Namespace).Delete(ctx, account.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &account.UID},
	})
	// A conflict is about the UID: it is gone, and another one has its name.
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete ServiceAccount: %w", err)
	}
	return nil
}

// forget ends the belief in a ServiceAccount that was just made.
func (c *Controller) forget(account *corev1.ServiceAccount) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if made := c.made[account.Name]; made != nil && made.UID == account.UID {
		delete(c.made, account.Name)
	}
}

// revoke deletes the ServiceAccount of a ManagedServiceAccount that is gone or
// going, if it is ours.
func (c *Controller) revoke(ctx context.Context, name string, going bool) error {
	if !c.accountsSynced() {
		return nil // its watch brings every ServiceAccount that is ours
	}
	account := c.knownAccount(name)
	if account == nil || account.DeletionTimestamp != nil || account.Labels[v1beta1.ManagedServiceAccountLabel] != c.identity {
		return nil
	}
	if !going {
		if gone, err := c.ownerGone(ctx, name); !gone {
			return err
		}
	}
	if err := c.deleteAccount(ctx, account); err != nil {
		failures.WithLabelValues("serviceaccount").Inc()
		return err
	}
	return nil
}

// ownerGone asks the hub itself whether a ManagedServiceAccount does not exist.
// An answer that is not about it, such as that of a hub that does not serve the
// resource at the moment, is an error.
func (c *Controller) ownerGone(ctx context.Context, name string) (bool, error) {
	_, err := c.hub.AuthenticationV1beta1().ManagedServiceAccounts(c.clusterName).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		return false, errAgain
	}
	status, ok := err.(apierrors.APIStatus)
	if apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) &&
		ok && status.Status().Details != nil && status.Status().Details.Name == name {
		return true, nil
	}
	return false, fmt.Errorf("whether the account still exists on the hub: %w", err)
}

// leaveNamespace deletes the ServiceAccount that an account had in another
// namespace, before the agent was told to use the present one.
func (c *Controller) leaveNamespace(ctx context.Context, ref *v1beta1.ServiceAccountReference) error {
	if ref == nil || ref.Namespace == "" || ref.Namespace == c.namespace {
		return nil
	}
	account, err := c.managed.CoreV1().ServiceAccounts(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err == nil && (account.UID != ref.UID || account.Labels[v1beta1.ManagedServiceAccountLabel] != c.identity) {
		return nil
	}
	if err == nil {
		err = c.deleteAccount(ctx, account)
	}
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		// Whoever took the agent's access to the former namespace away is left
		// to clean it up.
		return nil
	}
	return err
}
