package migrate

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
)

var secrets = corev1.SchemeGroupVersion.WithResource("secrets")

// assignSecrets makes the ManagedServiceAccounts that the hub serves the owners of their Secrets: an account that the server
// created has another UID in its CustomResourceDefinition. Until then, accountPolicy keeps the garbage collector of the hub
// from deleting the Secrets.
func (m *migration) assignSecrets(ctx context.Context) error {
	i := slices.IndexFunc(m.kinds, func(kind *handover.CustomKind) bool { return kind.Name == handover.KindServiceAccount })
	if i < 0 {
		return nil
	}
	accounts, err := handover.ListAll(ctx, m.Dynamic, m.kinds[i].Served())
	if err != nil {
		return err
	}
	client := m.metadata.Resource(secrets)
	list, err := client.List(ctx, metav1.ListOptions{LabelSelector: accountLabel + "=true"})
	if err != nil {
		return err
	}
	return cli.ForEach(list.Items, func(secret metav1.PartialObjectMetadata) error {
		account := accounts[secret.Namespace+"/"+secret.Name]
		if account == nil || !assign(&secret, account.GetUID()) {
			return nil
		}
		patch := cli.MergePatch(map[string]any{"metadata": map[string]any{"ownerReferences": secret.OwnerReferences, "resourceVersion": secret.ResourceVersion}})
		_, err := client.Namespace(secret.Namespace).Patch(ctx, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: cli.FieldManager})
		return cli.Prefix(cli.IgnoreNotFound(err), "secret/%s in %s", secret.Name, secret.Namespace)
	})
}

// assign replaces the UID of the account in the owner references of its Secret, and reports whether that changes them.
func assign(secret *metav1.PartialObjectMetadata, uid types.UID) (changed bool) {
	for i := range secret.OwnerReferences {
		owner := &secret.OwnerReferences[i]
		version, err := schema.ParseGroupVersion(owner.APIVersion)
		if err != nil || version.Group != authenticationv1beta1.GroupName || owner.Kind != handover.KindServiceAccount || owner.Name != secret.Name {
			continue
		}
		changed = changed || owner.UID != uid
		owner.UID = uid
	}
	return changed
}
