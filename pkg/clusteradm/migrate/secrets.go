package migrate

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
)

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
	client := m.metadata.Resource(corev1.SchemeGroupVersion.WithResource("secrets"))
	secrets, err := client.List(ctx, metav1.ListOptions{LabelSelector: accountLabel + "=true"})
	if err != nil {
		return err
	}
	return cli.ForEach(secrets.Items, func(secret metav1.PartialObjectMetadata) error {
		account, owners := accounts[secret.Namespace+"/"+secret.Name], secret.OwnerReferences
		at := slices.IndexFunc(owners, func(owner metav1.OwnerReference) bool { return owner.Kind == handover.KindServiceAccount })
		if account == nil || at < 0 || owners[at].UID == account.GetUID() {
			return nil
		}
		owners[at].UID = account.GetUID()
		patch := cli.MergePatch(map[string]any{"metadata": map[string]any{"ownerReferences": owners, "resourceVersion": secret.ResourceVersion}})
		_, err := client.Namespace(secret.Namespace).Patch(ctx, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: cli.FieldManager})
		return cli.Prefix(cli.IgnoreNotFound(err), "secret/%s in %s", secret.Name, secret.Namespace)
	})
}
