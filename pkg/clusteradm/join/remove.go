package join

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/program"
	clusterclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/cluster/v1"
)

// AgentClusterRole is the ClusterRole of the agent on the managed cluster, and the beginning of the names of the others.
const AgentClusterRole = "open-cluster-management:agent"

// setNotAccepted revokes the acceptance. Hubs that run OCM let a cluster update its ManagedCluster, but not patch it.
func setNotAccepted(ctx context.Context, clusters clusterclient.ManagedClusterInterface, cluster *clusterv1.ManagedCluster) error {
	patch := cli.MergePatch(map[string]any{
		"metadata": map[string]any{"uid": cluster.UID},
		"spec":     map[string]any{"hubAcceptsClient": false},
	})
	_, err := clusters.Patch(ctx, cluster.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: cli.FieldManager})
	if !apierrors.IsForbidden(err) {
		return err
	}
	cluster = cluster.DeepCopy()
	cluster.Spec.HubAcceptsClient = false
	_, err = clusters.Update(ctx, cluster, metav1.UpdateOptions{FieldManager: cli.FieldManager})
	return err
}

// accountsSelector selects the ServiceAccounts that the agent of a cluster created for its hub.
func accountsSelector(hubHash, cluster string) string {
	sum := sha256.Sum256([]byte(hubHash + "/" + cluster))
	return authenticationv1beta1.ManagedServiceAccountLabel + "=" + hex.EncodeToString(sum[:])[:40]
}

// remove removes the agent from the cluster. It removes the workload first and its permissions next, so that the agent
// cannot restore objects, and then all other objects. Objects that agents of other hubs use remain.
func (u *unjoining) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, program.DefaultTimeout)
	defer cancel()
	if err := u.applier.Remove(ctx, manifests.Named("apps/v1", manifests.KindDeployment, u.namespace, manifests.AgentName)); err != nil {
		return err
	}
	if err := cli.WaitForNoPods(ctx, u.Kube, u.namespace, manifests.AgentLabel); err != nil {
		return err
	}
	objects, err := Manifests(Managed, u.namespace)
	if err != nil {
		return err
	}
	others, err := u.otherAgents(ctx)
	if err != nil {
		return err
	}
	var bindings, namespaces []*unstructured.Unstructured
	rest := []*unstructured.Unstructured{
		manifests.Named("v1", manifests.KindSecret, u.namespace, BootstrapSecret), manifests.Named("v1", manifests.KindSecret, u.namespace, HubSecret),
	}
	for _, object := range objects {
		switch {
		case object.GetKind() == manifests.KindCRD:
		case manifests.IsBinding(object):
			bindings = append(bindings, object)
		case object.GetKind() == manifests.KindNamespace:
			namespaces = append(namespaces, object)
		case object.GetNamespace() == u.namespace || !others:
			rest = append(rest, object)
		}
	}
	if err := u.applier.Remove(ctx, append(bindings, rest...)...); err != nil {
		return err
	}
	if u.purge {
		if err := u.purgeRecords(ctx, others); err != nil {
			return err
		}
	}
	return u.removeNamespaces(ctx, namespaces, others)
}

// otherAgents reports whether agents in other namespaces are bound to the agent's role.
func (u *unjoining) otherAgents(ctx context.Context) (bool, error) {
	bindings, err := u.Kube.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("agents of other hubs: %w", err)
	}
	return slices.ContainsFunc(bindings.Items, func(binding rbacv1.ClusterRoleBinding) bool {
		return binding.RoleRef.Name == AgentClusterRole && slices.ContainsFunc(binding.Subjects, func(subject rbacv1.Subject) bool {
			return subject.Kind == rbacv1.ServiceAccountKind && subject.Namespace != u.namespace
		})
	}), nil
}

// purgeRecords removes the CRD of the agent's records unless records exist, whose deletion deletes applied objects.
func (u *unjoining) purgeRecords(ctx context.Context, others bool) error {
	if others {
		u.Warn("the CustomResourceDefinition of AppliedManifestWorks is kept: agents of other hubs use it")
		return nil
	}
	records, err := u.OCM.WorkV1().AppliedManifestWorks().List(ctx, metav1.ListOptions{})
	if err != nil {
		return cli.Prefix(cli.IgnoreNotFound(err), "AppliedManifestWorks")
	}
	if len(records.Items) > 0 {
		u.Warn("the CustomResourceDefinition of AppliedManifestWorks is kept: %d of them remain and own applied objects", len(records.Items))
		return nil
	}
	objects, err := manifests.Read("agent/managed/appliedmanifestworks.crd.yaml")
	if err != nil {
		return err
	}
	return u.applier.Remove(ctx, objects...)
}

func (u *unjoining) removeNamespaces(ctx context.Context, namespaces []*unstructured.Unstructured, others bool) error {
	var errs []error
	for _, object := range namespaces {
		name := object.GetName()
		if name != u.namespace && others {
			continue
		}
		live, err := u.applier.Live(ctx, object)
		switch {
		case err != nil || live == nil:
			errs = append(errs, err)
		case !manifests.Created(live):
			u.Say("namespace/%s stays: clusteradm did not create it", name)
		case live.GetDeletionTimestamp() == nil:
			errs = append(errs, u.applier.Remove(ctx, object))
		}
	}
	return errors.Join(errs...)
}
