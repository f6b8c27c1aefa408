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
)

// Annotations of a ManagedCluster by which an agent claims to be an EKS cluster.
// They are read once, before the cluster is accepted for the first time.
const (
	// ARNAnnotation has the ARN, in the spelling of the public agents.
	ARNAnnotation = "agent.open-cluster-management.io/managed-cluster-arn"
	// EKSARNAnnotation has it in the spelling of the enhancement proposal.
	EKSARNAnnotation = "eks-managed-cluster-arn"
	// RoleSuffixAnnotation has the hash of the identity, which the server knows
	// itself. It is only compared.
	RoleSuffixAnnotation = "agent.open-cluster-management.io/managed-cluster-iam-role-suffix"
)

// RequestedByAnnotation is who created a ManagedCluster. The server writes it, and
// nobody can change it: it is for a server that crashed before it wrote the registration.
const RequestedByAnnotation = "register.open-cluster-management.io/requested-by"

// claimReadAnnotation is on the registration of a cluster that has, or has had, a
// claim. The annotations of its ManagedCluster mean nothing any more.
const claimReadAnnotation = "register.open-cluster-management.io/claim-read"

const (
	// maxShown bounds what is repeated in errors of what a cluster wrote.
	maxShown = 256

	noIRSA = "this hub does not register clusters with aws-irsa"
)

// claim is a claim to be an EKS cluster, and where it was made.
type claim struct {
	irsa.Identity
	path *field.Path
}

func annotationPath(key string) *field.Path {
	return field.NewPath("metadata", "annotations").Key(key)
}

// readClaim returns what annotations claim; nil if they claim nothing. hub is nil if
// it is on no EKS cluster.
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
		return nil, field.ErrorList{field.Required(annotationPath(ARNAnnotation), "the suffix of a role is none without the ARN of a cluster")}
	}
	path := annotationPath(keys[0])
	given := annotations[keys[0]]
	if len(keys) > 1 && annotations[keys[1]] != given {
		return nil, field.ErrorList{field.Invalid(annotationPath(keys[1]), shown(annotations[keys[1]]), "must be the same as annotation "+keys[0])}
	}
	identity, err := identify(*hub, given)
	if err != nil {
		return nil, field.ErrorList{field.Invalid(path, shown(given), err.Error())}
	}
	if suffixed && suffix != identity.Hash() {
		return nil, field.ErrorList{field.Invalid(annotationPath(RoleSuffixAnnotation), shown(suffix), "must be "+identity.Hash()+", the MD5 of both clusters' accounts and names")}
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

// claimChanged tells whether the annotations that make a claim differ.
func claimChanged(annotations, old map[string]string) bool {
	return slices.ContainsFunc([]string{ARNAnnotation, EKSARNAnnotation, RoleSuffixAnnotation}, func(key string) bool {
		value, given := annotations[key]
		before, had := old[key]
		return given != had || value != before
	})
}

// Untouched tells whether a cluster has never been given anything, so that nothing
// has to be removed before its registration is.
func Untouched(registration *registerv1alpha1.ManagedClusterRegistration) bool {
	if registration.Status.IRSA != nil && registration.Status.IRSA.Provisioned {
		return false
	}
	// The condition is there from the first attempt on, and not only after a success.
	return meta.FindStatusCondition(registration.Status.Conditions, registerv1alpha1.RegistrationAccessGranted) == nil
}

// OnceAccepted tells whether a cluster is accepted, or was.
func OnceAccepted(mc *clusterv1.ManagedCluster) bool {
	acceptance := mc.Status.Acceptance
	return mc.Spec.HubAcceptsClient || acceptance != nil && acceptance.EverAccepted
}

// open tells whether a registration may still get its claim from annotations.
func open(registration *registerv1alpha1.ManagedClusterRegistration) bool {
	_, read := registration.Annotations[claimReadAnnotation]
	return !read && registration.Spec.IRSA == nil && Untouched(registration)
}

// errTaken is that a registration is not any more what a claim was checked against.
var errTaken = errors.New("the registration has changed meanwhile")

// setClaim writes a claim into a registration.
func setClaim(registration *registerv1alpha1.ManagedClusterRegistration, identity irsa.Identity, claimed registerv1alpha1.IRSAClaim) {
	if registration.Annotations == nil {
		registration.Annotations = map[string]string{}
	}
	registration.Annotations[claimReadAnnotation] = "true"
	registration.Spec.Driver = registerv1alpha1.DriverAWSIRSA
	registration.Spec.IRSA = &claimed
	registration.Status.IRSA = &registerv1alpha1.IRSAStatus{
		Hash:                  identity.Hash(),
		HubRoleARN:            identity.HubRoleARN(),
		ManagedClusterRoleARN: identity.ManagedClusterRoleARN(),
	}
}
