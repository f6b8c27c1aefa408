package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
)

// accountSecrets replaces the owner references of each Secret of a ManagedServiceAccount by those that owners returns for
// the Secret and its account, which is nil if it does not exist. kept selects the accounts in the CustomResourceDefinition.
func (m *migration) accountSecrets(ctx context.Context, kept bool, owners func(old []metav1.OwnerReference, account *unstructured.Unstructured) []metav1.OwnerReference) error {
	i := slices.IndexFunc(m.kinds, func(kind *handover.CustomKind) bool { return kind.Name == handover.KindServiceAccount })
	if i < 0 {
		return nil
	}
	resource := m.kinds[i].Served()
	if kept {
		resource = m.kinds[i].Kept()
	}
	accounts, err := handover.ListAll(ctx, m.Dynamic, resource)
	if err != nil {
		return err
	}
	client := m.metadata.Resource(corev1.SchemeGroupVersion.WithResource("secrets"))
	secrets, err := client.List(ctx, metav1.ListOptions{LabelSelector: accountLabel + "=true"})
	if err != nil {
		return err
	}
	var errs []error
	for i := range secrets.Items {
		secret := &secrets.Items[i]
		references := owners(secret.OwnerReferences, accounts[secret.Namespace+"/"+secret.Name])
		if len(references) == len(secret.OwnerReferences) {
			continue
		}
		patch := cli.MergePatch(map[string]any{"metadata": map[string]any{"ownerReferences": references, "resourceVersion": secret.ResourceVersion}})
		if _, err := client.Namespace(secret.Namespace).Patch(ctx, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: cli.FieldManager}); cli.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("secret/%s in %s: %w", secret.Name, secret.Namespace, err))
		}
	}
	return errors.Join(errs...)
}

func isAccount(owner metav1.OwnerReference) bool { return owner.Kind == handover.KindServiceAccount }

// detachSecrets removes the owners of Secrets whose account has another UID in the CustomResourceDefinition. Otherwise
// the hub's garbage collector would delete the Secrets when it sees the account with that UID.
func (m *migration) detachSecrets(ctx context.Context) error {
	return m.accountSecrets(ctx, true, func(old []metav1.OwnerReference, account *unstructured.Unstructured) []metav1.OwnerReference {
		return slices.DeleteFunc(slices.Clone(old), func(owner metav1.OwnerReference) bool {
			return isAccount(owner) && account != nil && account.GetUID() != owner.UID
		})
	})
}

// attachSecrets makes the accounts of the CustomResourceDefinition the owners of their Secrets.
func (m *migration) attachSecrets(ctx context.Context) error {
	return m.accountSecrets(ctx, false, func(old []metav1.OwnerReference, account *unstructured.Unstructured) []metav1.OwnerReference {
		if account == nil || slices.ContainsFunc(old, isAccount) {
			return old
		}
		return append(slices.Clone(old), metav1.OwnerReference{
			APIVersion: account.GetAPIVersion(), Kind: account.GetKind(), Name: account.GetName(), UID: account.GetUID(),
		})
	})
}
