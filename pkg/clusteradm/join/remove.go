package clusteradm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/cluster/v1"
)

const (
	agentClusterRole = "open-cluster-management:agent"
	kindCRD          = "CustomResourceDefinition"
)

// setNotAccepted revokes the acceptance. Hubs that run OCM allow a cluster to update its
// ManagedCluster, but not to patch it.
func setNotAccepted(ctx context.Context, clusters clusterclient.ManagedClusterInterface, cluster *clusterv1.ManagedCluster) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": cluster.UID},
		"spec":     map[string]any{"hubAcceptsClient": false},
	})
	if err != nil {
		return err
	}
	_, err = clusters.Patch(ctx, cluster.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	if !apierrors.IsForbidden(err) {
		return err
	}
	cluster = cluster.DeepCopy()
	cluster.Spec.HubAcceptsClient = false
	_, err = clusters.Update(ctx, cluster, metav1.UpdateOptions{FieldManager: fieldManager})
	return err
}

// accountsSelector selects the ServiceAccounts that the agent of a cluster created for its
// hub.
func accountsSelector(hubHash, cluster string) string {
	sum := sha256.Sum256([]byte(hubHash + "/" + cluster))
	return authenticationv1beta1.ManagedServiceAccountLabel + "=" + hex.EncodeToString(sum[:])[:40]
}

// remove removes the agent from the cluster. It removes the workload first and its
// permissions next, so that the agent cannot restore objects, and then all other objects.
// Objects that agents of other hubs use remain.
func (u *unjoining) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	deployment := named("apps/v1", kindDeployment, u.namespace, agentName)
	if err := u.install.remove(ctx, deployment); err != nil {
		return err
	}
	if err := poll(ctx, func(ctx context.Context) (string, error) {
		pods, err := u.kube.CoreV1().Pods(u.namespace).List(ctx, metav1.ListOptions{LabelSelector: agentLabel})
		if err != nil || len(pods.Items) == 0 {
			return "", err
		}
		return fmt.Sprintf("Pod %s of the agent still runs", pods.Items[0].Name), nil
	}); err != nil {
		return err
	}
	objects, err := agentManifests(u.namespace)
	if err != nil {
		return err
	}
	others, err := u.otherAgents(ctx)
	if err != nil {
		return err
	}
	var bindings, own, shared, namespaces []*unstructured.Unstructured
	for _, object := range objects {
		switch {
		case object.GetKind() == kindCRD:
		case isBinding(object):
			bindings = append(bindings, object)
		case object.GetKind() == kindNamespace:
			namespaces = append(namespaces, object)
		case object.GetNamespace() == u.namespace:
			own = append(own, object)
		default:
			shared = append(shared, object)
		}
	}
	own = append(own, named("v1", "Secret", u.namespace, bootstrapSecret), named("v1", "Secret", u.namespace, hubSecret))
	if err := u.install.remove(ctx, append(bindings, own...)...); err != nil {
		return err
	}
	if others == 0 {
		if err := u.install.remove(ctx, shared...); err != nil {
			return err
		}
	}
	if u.purge {
		if err := u.purgeRecords(ctx, others); err != nil {
			return err
		}
	}
	return u.removeNamespaces(ctx, namespaces, others)
}

func named(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(apiVersion)
	object.SetKind(kind)
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}

// otherAgents returns the number of agents in other namespaces that are bound to the
// agent's role.
func (u *unjoining) otherAgents(ctx context.Context) (int, error) {
	bindings, err := u.kube.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("agents of other hubs: %w", err)
	}
	others := 0
	for i := range bindings.Items {
		binding := &bindings.Items[i]
		if binding.RoleRef.Name != agentClusterRole {
			continue
		}
		for _, subject := range binding.Subjects {
			if subject.Kind == kindServiceAccount && subject.Namespace != u.namespace {
				others++
			}
		}
	}
	return others, nil
}

// purgeRecords removes the CRD of the agent's records unless records exist, because the
// deletion of a record deletes the objects that it owns.
func (u *unjoining) purgeRecords(ctx context.Context, others int) error {
	if others > 0 {
		u.warn("the CustomResourceDefinition of AppliedManifestWorks is kept: agents of other hubs use it")
		return nil
	}
	records, err := u.ocm.WorkV1().AppliedManifestWorks().List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("AppliedManifestWorks: %w", err)
	case len(records.Items) > 0:
		u.warn("the CustomResourceDefinition of AppliedManifestWorks is kept: %d of them remain and own applied objects", len(records.Items))
		return nil
	}
	objects, err := manifests("agent/managed/appliedmanifestworks.crd.yaml")
	if err != nil {
		return err
	}
	return u.install.remove(ctx, objects...)
}

// removeNamespaces removes the namespaces that clusteradm created and no other agent uses.
func (u *unjoining) removeNamespaces(ctx context.Context, namespaces []*unstructured.Unstructured, others int) error {
	var errs []error
	for _, object := range namespaces {
		name := object.GetName()
		if name != u.namespace && others > 0 {
			continue
		}
		namespace, err := u.kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			errs = append(errs, fmt.Errorf("namespace %s: %w", name, err))
		case namespace.Labels[managedByLabel] != fieldManager:
			say(u.streams.Out, "namespace/%s stays: clusteradm did not create it", name)
		case namespace.DeletionTimestamp == nil:
			errs = append(errs, u.install.remove(ctx, object))
		}
	}
	return errors.Join(errs...)
}
