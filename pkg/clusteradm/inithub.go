package clusteradm

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/signing"
)

// These functions find out what a hub runs already, before init changes it.

// detectOCM finds out whether the hub runs OCM: its CustomResourceDefinitions then keep the kinds that an
// APIService would hide. It returns an error if a kind that the server must serve has one.
func (i *initializing) detectOCM(ctx context.Context, install *installer) error {
	crds := install.client.Resource(customResourceDefinitions)
	has := func(resource string, version schema.GroupVersion) (bool, error) {
		name := resource + "." + version.Group
		if _, err := crds.Get(ctx, name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return false, nil
		} else if err != nil {
			return false, fmt.Errorf("checking whether the hub runs OCM: %w", err)
		}
		// The server already serves this group: the CustomResourceDefinition is hidden.
		aggregated, err := install.aggregates(ctx, version)
		return !aggregated, err
	}
	found, err := has("managedclusters", clusterv1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	i.hub.existingOCM = i.hub.existingOCM || found
	if !i.hub.existingOCM {
		return nil
	}
	for resource, version := range map[string]schema.GroupVersion{
		"clusterpermissions":     rbacv1alpha1.SchemeGroupVersion,
		"managedserviceaccounts": authenticationv1beta1.SchemeGroupVersion,
	} {
		found, err := has(resource, version)
		if err != nil {
			return err
		}
		if found {
			return fmt.Errorf("the hub stores %s in a CustomResourceDefinition, which the server would hide. Move them to the server with clusteradm init --before-migration and clusteradm migrate, or delete the CustomResourceDefinition %s.%s and its controller; see docs/migration.md", resource, resource, version.Group)
		}
	}
	say(i.streams.Out, "the hub runs OCM, which continues to store ManifestWorks, ManagedClusters, sets and add-ons, and to register clusters")
	return nil
}

// probe prints a warning if the hub does not sign the certificates that clusters request.
func (i *initializing) probe(ctx context.Context, kube kubernetes.Interface) error {
	refusal, err := signing.Probe(ctx, kube, probeName, i.probeTimeout)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("checking whether the hub signs client certificates: %w", errors.Join(err, ctx.Err()))
	case err != nil && !apierrors.IsForbidden(err):
		return fmt.Errorf("checking whether the hub signs client certificates: %w", err)
	case err != nil:
		i.warn("cannot check whether the hub signs client certificates, since you have no permission: %s. If it does not, clusters cannot join with --registration-auth=%s.", printable(err.Error()), registerv1alpha1.DriverCSR)
	case refusal != "":
		i.warn(`the hub does not sign client certificates: %s.
Clusters cannot join by --registration-auth=%s until it does; they wait for a certificate.
If the hub is on Amazon EKS, which signs none: clusteradm init --registration-auth=%s --hub-cluster-arn ARN
Otherwise start kube-controller-manager with --cluster-signing-cert-file and --cluster-signing-key-file, and run clusteradm init again.`,
			printable(refusal), registerv1alpha1.DriverCSR, registerv1alpha1.DriverAWSIRSA)
	default:
		say(i.streams.Out, "the hub signs client certificates")
	}
	return nil
}

// hiddenByProxyAccounts returns a reason to confirm --proxy-accounts for each CustomResourceDefinition of the hub that it would
// hide.
func hiddenByProxyAccounts(ctx context.Context, install *installer) ([]string, error) {
	version, err := schema.ParseGroupVersion(proxyAccountsVersion)
	if err != nil {
		return nil, err
	}
	if served, err := install.aggregates(ctx, version); err != nil || served {
		return nil, err // they are hidden already
	}
	crds, err := install.client.Resource(customResourceDefinitions).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("looking for CustomResourceDefinitions of %s: %w", version.Group, err)
	}
	var reasons []string
	for _, crd := range crds.Items {
		if group, _, _ := unstructured.NestedString(crd.Object, "spec", "group"); group != version.Group {
			continue
		}
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		for _, entry := range versions {
			if fields, ok := entry.(map[string]any); ok && fields["name"] == version.Version {
				reasons = append(reasons, fmt.Sprintf("--proxy-accounts hides version %s of the CustomResourceDefinition %s: its objects can no longer be read or written in that version", version.Version, printable(crd.GetName())))
			}
		}
	}
	return reasons, nil
}
