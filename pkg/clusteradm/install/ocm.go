package install

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
	"open-cluster-management.io/hub-apiserver/pkg/signing"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

// These functions find out what a hub runs already, before init changes it.

// detectOCM finds out whether the hub runs OCM: its CustomResourceDefinitions then keep the kinds that an
// APIService would hide. It returns an error if a kind that the server must serve has one.
func (i *initializing) detectOCM(ctx context.Context) error {
	stores := func(resource string, version schema.GroupVersion) (bool, error) {
		crd, err := cli.Optional(i.Dynamic.Resource(handover.CustomResourceDefinitions).Get(ctx, resource+"."+version.Group, metav1.GetOptions{}))
		if err != nil || crd == nil {
			return false, cli.Prefix(err, "checking whether the hub runs OCM")
		}
		// If the server already serves this group, the CustomResourceDefinition is hidden.
		forwarded, err := i.Forwards(ctx, version)
		return !forwarded, err
	}
	found, err := stores("managedclusters", clusterv1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	i.hub.existingOCM = i.hub.existingOCM || found
	if !i.hub.existingOCM {
		return nil
	}
	for resource, served := range map[string]schema.GroupVersion{
		"clusterpermissions":     rbacv1alpha1.SchemeGroupVersion,
		"managedserviceaccounts": authenticationv1beta1.SchemeGroupVersion,
	} {
		found, err := stores(resource, served)
		if err != nil {
			return err
		}
		if found {
			return fmt.Errorf("the hub stores %s in a CustomResourceDefinition, which the server would hide. Move them to the server with clusteradm init --before-migration and clusteradm migrate, or delete the CustomResourceDefinition %s.%s and its controller; see %s", resource, resource, served.Group, version.Docs("migration.md#before-you-migrate"))
		}
	}
	i.Say("the hub runs OCM, which continues to store ManifestWorks, ManagedClusters, sets and add-ons, and to register clusters")
	return nil
}

// waitsForMigration reports whether the hub still stores kinds that a migration moves to the server.
func (i *initializing) waitsForMigration(ctx context.Context) (bool, error) {
	kinds, _, err := handover.ReadKinds(ctx, i.Dynamic)
	if err != nil {
		return false, err
	}
	for _, kind := range kinds {
		if served, err := i.Forwards(ctx, kind.Version); err != nil || !served {
			return err == nil, err
		}
	}
	return false, nil
}

// rolesOfOCM are the ClusterRoles that an installation has in common with OCM, whose agents need its rules until the
// migration.
var rolesOfOCM = []string{"open-cluster-management:bootstrap", "open-cluster-management:managedcluster:registration", "open-cluster-management:managedcluster:work"}

// stepAside returns the objects without the APIServices of kinds that the hub stores and without existing ClusterRoles of
// OCM, and whether the server must not run its controllers.
func (i *initializing) stepAside(ctx context.Context, objects []*unstructured.Unstructured) (kept []*unstructured.Unstructured, waiting bool, err error) {
	if kinds, _, err := handover.ReadKinds(ctx, i.Dynamic); err != nil {
		return nil, false, err
	} else if len(kinds) == 0 {
		return nil, false, errors.New("the hub has no CustomResourceDefinitions of OCM: omit --before-migration")
	}
	versions := map[string]schema.GroupVersion{}
	for _, version := range handover.SwitchedVersions() {
		versions[cli.APIServiceName(version)] = version
	}
	for _, object := range objects {
		stays := true
		switch {
		case object.GetKind() == "ClusterRole" && slices.Contains(rolesOfOCM, object.GetName()):
			role, err := cli.Optional(i.Kube.RbacV1().ClusterRoles().Get(ctx, object.GetName(), metav1.GetOptions{}))
			if err != nil {
				return nil, false, err
			}
			stays = role == nil
		case object.GetKind() == cli.KindAPIService:
			elsewhere, err := i.ForwardsElsewhere(ctx, object)
			if err != nil {
				return nil, false, err
			}
			stays = !elsewhere
			if version, moves := versions[object.GetName()]; moves && stays {
				if stays, err = i.Forwards(ctx, version); err != nil {
					return nil, false, err
				}
				waiting = waiting || !stays
			}
		}
		if stays {
			kept = append(kept, object)
		}
	}
	return kept, waiting, nil
}

// probe prints a warning if the hub does not sign the certificates that clusters request.
func (i *initializing) probe(ctx context.Context) error {
	refusal, err := signing.Probe(ctx, i.Kube, probeName, i.probeTimeout)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("checking whether the hub signs client certificates: %w", errors.Join(err, ctx.Err()))
	case err != nil && !apierrors.IsForbidden(err):
		return fmt.Errorf("checking whether the hub signs client certificates: %w", err)
	case err != nil:
		i.Warn("cannot check whether the hub signs client certificates, since you have no permission: %s. If it does not, clusters cannot join with --registration-auth=%s.", cli.Printable(err.Error()), registerv1alpha1.DriverCSR)
	case refusal != "":
		i.Warn(`the hub does not sign client certificates: %s.
Clusters cannot join by --registration-auth=%s until it does; they wait for a certificate.
If the hub is on Amazon EKS, which signs none: clusteradm init --registration-auth=%s --hub-cluster-arn ARN
Otherwise start kube-controller-manager with --cluster-signing-cert-file and --cluster-signing-key-file, and run clusteradm init again.`,
			cli.Printable(refusal), registerv1alpha1.DriverCSR, registerv1alpha1.DriverAWSIRSA)
	default:
		i.Say("the hub signs client certificates")
	}
	return nil
}

// hiddenByProxyAccounts returns a reason to confirm --proxy-accounts for each CustomResourceDefinition of the hub that it would
// hide.
func (i *initializing) hiddenByProxyAccounts(ctx context.Context) ([]string, error) {
	version, err := schema.ParseGroupVersion(proxyAccountsVersion)
	if err != nil {
		return nil, err
	}
	if served, err := i.Forwards(ctx, version); err != nil || served {
		return nil, err // they are hidden already
	}
	crds, err := i.Dynamic.Resource(handover.CustomResourceDefinitions).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("looking for CustomResourceDefinitions of %s: %w", version.Group, err)
	}
	var reasons []string
	for n := range crds.Items {
		if crd := &crds.Items[n]; handover.HasVersion(crd, version) {
			reasons = append(reasons, fmt.Sprintf("--proxy-accounts hides version %s of the CustomResourceDefinition %s: its objects can no longer be read or written in that version", version.Version, cli.Printable(crd.GetName())))
		}
	}
	return reasons, nil
}
