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
	proxyv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/proxy/v1alpha1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
	"open-cluster-management.io/hub-apiserver/pkg/signing"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

// detectOCM finds out whether the hub runs OCM. It returns an error if a kind that the server must serve is stored there.
func (i *initializing) detectOCM(ctx context.Context) error {
	_, found, err := i.definition(ctx, "managedclusters", clusterv1.SchemeGroupVersion)
	if i.hub.existingOCM = i.hub.existingOCM || found; err != nil || !i.hub.existingOCM {
		return err
	}
	for resource, served := range map[string]schema.GroupVersion{
		"clusterpermissions":     rbacv1alpha1.SchemeGroupVersion,
		"managedserviceaccounts": authenticationv1beta1.SchemeGroupVersion,
	} {
		_, found, err := i.definition(ctx, resource, served)
		switch {
		case err != nil:
			return err
		case found:
			return fmt.Errorf("the hub stores %s in a CustomResourceDefinition, which the server would hide. Move them to the server with clusteradm init --before-migration and clusteradm migrate, or delete the CustomResourceDefinition %s.%s and its controller; see %s", resource, resource, served.Group, version.Docs("migration.md#before-you-migrate"))
		}
	}
	i.Say("the hub runs OCM, which continues to store ManifestWorks, ManagedClusters, sets and add-ons, and to register clusters")
	return nil
}

// definition reports whether the hub has a CustomResourceDefinition, and whether it serves it: the server may hide it.
func (i *initializing) definition(ctx context.Context, resource string, version schema.GroupVersion) (exists, serves bool, err error) {
	crd, err := cli.Optional(i.Dynamic.Resource(handover.CustomResourceDefinitions).Get(ctx, resource+"."+version.Group, metav1.GetOptions{}))
	if err != nil || crd == nil {
		return false, false, cli.Prefix(err, "checking whether the hub runs OCM")
	}
	forwarded, err := i.Forwards(ctx, version)
	return true, !forwarded, err
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

// rolesOfOCM are the ClusterRoles in common with OCM, whose agents need its rules until the migration.
var rolesOfOCM = []string{"open-cluster-management:bootstrap", "open-cluster-management:managedcluster:registration", "open-cluster-management:managedcluster:work"}

// stepAside returns the objects that hide or change nothing of OCM, and whether the server must not run its controllers.
func (i *initializing) stepAside(ctx context.Context, objects []*unstructured.Unstructured) (kept []*unstructured.Unstructured, waiting bool, err error) {
	if kinds, _, err := handover.ReadKinds(ctx, i.Dynamic); err != nil {
		return nil, false, err
	} else if len(kinds) == 0 {
		return nil, false, errors.New("the hub has no CustomResourceDefinitions of OCM: omit --before-migration")
	}
	var moving []string
	for _, version := range handover.SwitchedVersions() {
		moving = append(moving, cli.APIServiceName(version))
	}
	for _, object := range objects {
		role := object.GetKind() == "ClusterRole" && slices.Contains(rolesOfOCM, object.GetName())
		if !role && object.GetKind() != cli.KindAPIService {
			kept = append(kept, object)
			continue
		}
		live, err := i.applier.Live(ctx, object)
		switch target := serviceOf(live); {
		case err != nil:
			return nil, false, err
		case role && live != nil, !role && target != serviceOf(nil) && target != serviceOf(object):
		case !role && target == serviceOf(nil) && slices.Contains(moving, object.GetName()):
			waiting = true
		default:
			kept = append(kept, object)
		}
	}
	return kept, waiting, nil
}

// probe prints a warning if the hub does not sign the certificates that clusters request.
func (i *initializing) probe(ctx context.Context) error {
	refusal, err := signing.Probe(ctx, i.Kube, "clusteradm-probe", i.probeTimeout)
	switch {
	case ctx.Err() != nil, err != nil && !apierrors.IsForbidden(err):
		return fmt.Errorf("checking whether the hub signs client certificates: %w", errors.Join(err, ctx.Err()))
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

// hiddenByProxyAccounts returns a reason to confirm --proxy-accounts for each CustomResourceDefinition that it would hide.
func (i *initializing) hiddenByProxyAccounts(ctx context.Context) ([]string, error) {
	version := proxyv1alpha1.SchemeGroupVersion
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
