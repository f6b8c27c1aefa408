package registration

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/validation/field"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/rehoming"
)

// Annotations of a ManagedCluster that claim an EKS cluster. The server reads them once, before the cluster is accepted
// for the first time.
const (
	// ARNAnnotation contains the ARN. Upstream OCM agents write it.
	ARNAnnotation = "agent.open-cluster-management.io/managed-cluster-arn"
	// EKSARNAnnotation is the name of the same annotation in the OCM enhancement proposal.
	EKSARNAnnotation = "eks-managed-cluster-arn"
	// RoleSuffixAnnotation contains the hash of the identity. The server computes the hash and only compares it.
	RoleSuffixAnnotation = "agent.open-cluster-management.io/managed-cluster-iam-role-suffix"
)

// RequestedByAnnotation names the creator of a ManagedCluster. Only the server writes it. It survives a crash before
// the registration is written.
const RequestedByAnnotation = "register.open-cluster-management.io/requested-by"

// claimReadAnnotation marks a registration that has, or had, a claim. Later changes of the claim annotations have no
// effect.
const claimReadAnnotation = "register.open-cluster-management.io/claim-read"

const (
	// maxShown bounds the bytes of a cluster's input that an error message repeats.
	maxShown = 256

	noIRSA = "the registration driver aws-irsa is not enabled"
)

// claim is the EKS identity that a cluster claims, with the path of the annotation.
type claim struct {
	irsa.Identity
	path *field.Path
}

func annotationPath(key string) *field.Path {
	return field.NewPath("metadata", "annotations").Key(key)
}

// readClaim returns the claim in annotations, or nil if there is none. hub is nil without the driver aws-irsa.
func readClaim(hub *irsa.ARN, annotations map[string]string) (*claim, field.ErrorList) {
	var keys []string
	for _, key := range []string{ARNAnnotation, EKSARNAnnotation} {
		if _, given := annotations[key]; given {
			keys = append(keys, key)
		}
	}
	suffix, suffixed := annotations[RoleSuffixAnnotation]
	if len(keys) == 0 && !suffixed {
		return nil, nil
	}
	if hub == nil {
		if suffixed {
			keys = append(keys, RoleSuffixAnnotation)
		}
		var errs field.ErrorList
		for _, key := range keys {
			errs = append(errs, field.Forbidden(annotationPath(key), noIRSA))
		}
		return nil, errs
	}
	if len(keys) == 0 {
		return nil, field.ErrorList{field.Required(annotationPath(ARNAnnotation), "required with annotation "+RoleSuffixAnnotation)}
	}
	path := annotationPath(keys[0])
	given := annotations[keys[0]]
	if len(keys) > 1 && annotations[keys[1]] != given {
		return nil, field.ErrorList{field.Invalid(annotationPath(keys[1]), shown(annotations[keys[1]]), "must equal annotation "+keys[0])}
	}
	identity, err := identify(*hub, given)
	if err != nil {
		return nil, field.ErrorList{field.Invalid(path, shown(given), err.Error())}
	}
	if suffixed && suffix != identity.Hash() {
		return nil, field.ErrorList{field.Invalid(annotationPath(RoleSuffixAnnotation), shown(suffix), "must be "+identity.Hash()+", the MD5 hash of the accounts and names of both clusters")}
	}
	return &claim{Identity: identity, path: path}, nil
}

// identify returns the identity of the EKS cluster with this ARN.
func identify(hub irsa.ARN, arn string) (irsa.Identity, error) {
	managed, err := irsa.ParseARN(arn)
	if err != nil {
		return irsa.Identity{}, err
	}
	identity := irsa.Identity{Hub: hub, Managed: managed}
	return identity, identity.Validate()
}

func shown(value string) string {
	if len(value) > maxShown {
		return fmt.Sprintf("%.*s...", maxShown, value)
	}
	return value
}

// claimChanged reports whether the claim annotations differ.
func claimChanged(annotations, old map[string]string) bool {
	return slices.ContainsFunc([]string{ARNAnnotation, EKSARNAnnotation, RoleSuffixAnnotation}, func(key string) bool {
		value, given := annotations[key]
		before, had := old[key]
		return given != had || value != before
	})
}

// Untouched reports whether nothing was ever granted or provisioned for a registration, so that it can be deleted
// without a cleanup.
func Untouched(registration *registerv1alpha1.ManagedClusterRegistration) bool {
	// The first attempt sets the condition, whether it succeeds or not.
	return !provisioned(registration) && meta.FindStatusCondition(registration.Status.Conditions, registerv1alpha1.RegistrationAccessGranted) == nil
}

// Replaceable reports whether the registration of another cluster of the same name may replace a registration: nothing was
// granted for it, here or on the hub from which it was adopted.
func Replaceable(registration *registerv1alpha1.ManagedClusterRegistration) bool {
	return Untouched(registration) && registration.Annotations[rehoming.AdoptedAnnotation] == ""
}

// EverAccepted reports whether a cluster is, or was, accepted.
func EverAccepted(mc *clusterv1.ManagedCluster) bool {
	acceptance := mc.Status.Acceptance
	return mc.Spec.HubAcceptsClient || acceptance != nil && acceptance.EverAccepted
}

// claimable reports whether a registration may still take a claim from annotations.
func claimable(registration *registerv1alpha1.ManagedClusterRegistration) bool {
	_, read := registration.Annotations[claimReadAnnotation]
	return !read && registration.Spec.IRSA == nil && Untouched(registration)
}

// errStale is returned if a registration has changed since a claim was checked against it.
var errStale = errors.New("the registration was changed at the same time")

func setClaim(registration *registerv1alpha1.ManagedClusterRegistration, identity irsa.Identity, claimed registerv1alpha1.IRSAClaim) {
	if registration.Annotations == nil {
		registration.Annotations = map[string]string{}
	}
	registration.Annotations[claimReadAnnotation] = "true"
	registration.Spec.Driver = registerv1alpha1.DriverAWSIRSA
	registration.Spec.IRSA = &claimed
	registration.Status.IRSA = statusOf(identity)
}

// statusOf returns the names of the roles of an identity.
func statusOf(identity irsa.Identity) *registerv1alpha1.IRSAStatus {
	return &registerv1alpha1.IRSAStatus{
		Hash:                  identity.Hash(),
		HubRoleARN:            identity.HubRoleARN(),
		ManagedClusterRoleARN: identity.ManagedClusterRoleARN(),
	}
}
