// Package awsirsa is the registration driver in which agents authenticate with AWS IAM roles. A cluster on EKS assumes a
// role that only it can assume. The hub is on EKS too, or runs aws-iam-authenticator.
package awsirsa

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
)

// Cloud creates and removes the AWS resources of a cluster. The caller retries errors.
type Cloud interface {
	// Provision creates or repairs the desired resources. fresh means that none of them is expected to exist.
	Provision(ctx context.Context, desired irsa.Desired, fresh bool) error
	// Remove removes the resources. Missing resources are not an error.
	Remove(ctx context.Context, desired irsa.Desired) error
	// CheckAccessEntries returns why the hub does not support access entries, or an empty string.
	CheckAccessEntries(ctx context.Context, hub irsa.ARN) (string, error)
}

// Options configure a Driver. They are valid, and ResourceTags is optional.
type Options struct {
	// HubARN is the ARN of the hub's EKS cluster. With the mapping ConfigMap, the hub may be any cluster whose
	// aws-iam-authenticator has the cluster ID of this ARN.
	HubARN irsa.ARN
	// Mapping is how the hub maps IAM roles to groups.
	Mapping irsa.Mapping
	// ManageRoles means that the server creates the roles in the hub's account.
	ManageRoles bool
	// ResourceTags are additional tags of all created resources.
	ResourceTags map[string]string
	Cloud        Cloud
	// Hub reads and writes the ConfigMap aws-auth.
	Hub     kubernetes.Interface
	Records registration.Records
}

// Driver is the registration driver aws-irsa. Before the first request that creates a resource in AWS, the Driver
// records in the registration that AWS may contain resources of the cluster. It removes this record after the last
// request that removes a resource.
type Driver struct {
	options Options
	auth    *awsAuth
}

// New returns a Driver.
func New(o Options) *Driver {
	return &Driver{options: o, auth: &awsAuth{configMaps: o.Hub.CoreV1().ConfigMaps(authNamespace)}}
}

// Name returns aws-irsa.
func (d *Driver) Name() registerv1alpha1.RegistrationDriver { return registerv1alpha1.DriverAWSIRSA }

// Check checks whether the hub supports the mapping of roles.
func (d *Driver) Check(ctx context.Context) ([]string, error) {
	check := d.auth.check
	if d.options.Mapping == irsa.AccessEntry {
		check = func(ctx context.Context) (string, error) {
			return d.options.Cloud.CheckAccessEntries(ctx, d.options.HubARN)
		}
	}
	problem, err := check(ctx)
	if err != nil || problem == "" {
		return nil, err
	}
	return []string{problem}, nil
}

// Groups returns the groups of the current mapping, and the groups of a previous mapping while it may still
// exist.
func (d *Driver) Groups(record *registerv1alpha1.ManagedClusterRegistration) []string {
	mappings := []irsa.Mapping{d.options.Mapping}
	if state := record.Status.IRSA; state != nil && state.Provisioned {
		mappings = append(mappings, parseApplied(state.AppliedHash).Mappings...)
	}
	groups := sets.New[string]()
	for _, mapping := range mappings {
		groups.Insert(irsa.Desired{ClusterName: record.Name, Mapping: mapping}.Groups()...)
	}
	return sets.List(groups)
}

// Rules returns no rules, since tokens of IAM roles need no permission on the hub.
func (*Driver) Rules(*registerv1alpha1.ManagedClusterRegistration) []rbacv1.PolicyRule { return nil }

// Refuses returns why a cluster cannot be accepted with this registration.
func (d *Driver) Refuses(record *registerv1alpha1.ManagedClusterRegistration) string {
	switch claim := record.Spec.IRSA; {
	case claim == nil:
		return "the cluster has not claimed the ARN of an EKS cluster, which the driver aws-irsa requires"
	case claim.Withdrawn:
		return "the claim of the cluster is withdrawn, and its AWS resources are not removed yet"
	}
	desired, err := d.desired(record)
	if err != nil {
		return err.Error()
	}
	if err := sameIdentity(record, desired); err != nil {
		return err.Error()
	}
	return ""
}

// Provision creates or repairs the AWS resources of a cluster. With the mapping ConfigMap, it also writes the entry of
// the ConfigMap aws-auth. If the registration records a success, it makes no request unless verify is true.
func (d *Driver) Provision(ctx context.Context, record *registerv1alpha1.ManagedClusterRegistration, verify bool) error {
	if why := d.Refuses(record); why != "" {
		return errors.New(why)
	}
	desired, err := d.desired(record)
	if err != nil {
		return err
	}
	wanted := applied{Mappings: []irsa.Mapping{desired.Mapping}, Roles: desired.ManageRoles, Hash: desired.Hash()}
	if state := record.Status.IRSA; !verify && state != nil && state.Provisioned && state.AppliedHash == wanted.String() {
		return nil
	}

	// The caller's copy may be old, so the stored registration decides.
	var fresh bool
	var before applied
	_, err = d.options.Records.Update(ctx, record.Name, func(current *registerv1alpha1.ManagedClusterRegistration) error {
		if err := sameClaim(record, current); err != nil {
			return err
		}
		if current.Status.IRSA == nil {
			current.Status.IRSA = &registerv1alpha1.IRSAStatus{}
		}
		state := current.Status.IRSA
		fresh, before = !state.Provisioned, parseApplied(state.AppliedHash)
		state.Hash, state.HubRoleARN, state.ManagedClusterRoleARN = desired.Identity.Hash(), desired.HubRoleARN(), desired.ManagedClusterRoleARN()
		if fresh {
			before = applied{}
		}
		if state.AppliedHash != wanted.String() || fresh {
			state.AppliedHash = before.begin(wanted).String()
		}
		state.Provisioned = true
		return nil
	})
	if err != nil {
		return fmt.Errorf("storing the intent to provision ManagedCluster %q: %w", record.Name, err)
	}
	if err := d.options.Cloud.Provision(ctx, desired, fresh); err != nil {
		return err
	}
	if desired.Mapping == irsa.ConfigMap {
		if err := d.auth.edit(ctx, desired.HubRoleARN(), []mapping{entryOf(desired)}); err != nil {
			return err
		}
	}
	if err := d.unmap(ctx, desired, before); err != nil {
		return err
	}
	// A new leader may have revoked concurrently and missed these resources. This write makes it revoke again.
	return d.note(ctx, record, func(state *registerv1alpha1.IRSAStatus) {
		state.Provisioned, state.AppliedHash = true, wanted.String()
	})
}

// unmap removes a mapping that the server used before its configuration changed.
func (d *Driver) unmap(ctx context.Context, desired irsa.Desired, before applied) error {
	for _, mapping := range before.Mappings {
		if mapping == desired.Mapping {
			continue
		}
		former := desired
		former.Mapping, former.ManageRoles = mapping, false // the role stays
		if err := d.remove(ctx, former); err != nil {
			return err
		}
	}
	return nil
}

// Revoke removes the resources that Provision created, according to the registration.
func (d *Driver) Revoke(ctx context.Context, record *registerv1alpha1.ManagedClusterRegistration) error {
	state := record.Status.IRSA
	if state == nil || !state.Provisioned {
		return nil
	}
	if record.Spec.IRSA == nil {
		return fmt.Errorf("AWS contains the role %s of ManagedCluster %q, but its registration has no claim", state.HubRoleARN, record.Name)
	}
	desired, err := d.desired(record)
	if err != nil {
		return err
	}
	if err := sameIdentity(record, desired); err != nil {
		return err
	}
	former := parseApplied(state.AppliedHash)
	if len(former.Mappings) == 0 {
		former.Mappings, former.Roles = []irsa.Mapping{desired.Mapping}, desired.ManageRoles
	}
	desired.ManageRoles = former.Roles
	for _, mapping := range former.Mappings {
		desired.Mapping = mapping
		if err := d.remove(ctx, desired); err != nil {
			return err
		}
	}
	return d.note(ctx, record, func(state *registerv1alpha1.IRSAStatus) { state.Provisioned, state.AppliedHash = false, "" })
}

func (d *Driver) remove(ctx context.Context, desired irsa.Desired) error {
	// The mapping is removed first, since the role has no permission on the hub without it.
	if desired.Mapping == irsa.ConfigMap {
		if err := d.auth.edit(ctx, desired.HubRoleARN(), nil); err != nil {
			return err
		}
		if !desired.ManageRoles {
			return nil // AWS contains no resources
		}
	}
	return d.options.Cloud.Remove(ctx, desired)
}

// note stores the current state of AWS in the registration.
func (d *Driver) note(ctx context.Context, record *registerv1alpha1.ManagedClusterRegistration, change func(*registerv1alpha1.IRSAStatus)) error {
	_, err := d.options.Records.Update(ctx, record.Name, func(current *registerv1alpha1.ManagedClusterRegistration) error {
		if current.UID != record.UID || current.Status.IRSA == nil {
			return fmt.Errorf("the registration of ManagedCluster %q was replaced", record.Name)
		}
		change(current.Status.IRSA)
		return nil
	})
	if err != nil {
		return fmt.Errorf("storing the state of ManagedCluster %q in AWS: %w", record.Name, err)
	}
	return nil
}

func (d *Driver) desired(record *registerv1alpha1.ManagedClusterRegistration) (irsa.Desired, error) {
	managed, err := irsa.ParseARN(record.Spec.IRSA.ManagedClusterARN)
	if err != nil {
		return irsa.Desired{}, fmt.Errorf("the claimed ARN of ManagedCluster %q: %w", record.Name, err)
	}
	desired := irsa.Desired{
		Identity:    irsa.Identity{Hub: d.options.HubARN, Managed: managed},
		ManageRoles: d.options.ManageRoles, Mapping: d.options.Mapping,
		ClusterName: record.Name, ResourceTags: d.options.ResourceTags,
	}
	if err := desired.Validate(); err != nil {
		return irsa.Desired{}, fmt.Errorf("the identity of ManagedCluster %q: %w", record.Name, err)
	}
	return desired, nil
}

// sameIdentity returns an error if the resources of a registration belong to another hub ARN. In this case the
// configuration of the server has changed, and the current names do not match the resources.
func sameIdentity(record *registerv1alpha1.ManagedClusterRegistration, desired irsa.Desired) error {
	state := record.Status.IRSA
	if state == nil || !state.Provisioned || state.HubRoleARN == desired.HubRoleARN() {
		return nil
	}
	return fmt.Errorf("AWS contains the role %s of ManagedCluster %q, which does not belong to the hub %s: start the server with the previous hub ARN to remove it",
		state.HubRoleARN, record.Name, desired.Hub)
}

// sameClaim returns an error if the claim of a registration has changed since it was read.
func sameClaim(read, current *registerv1alpha1.ManagedClusterRegistration) error {
	if read.UID != current.UID || current.Spec.IRSA == nil || current.Spec.IRSA.Withdrawn ||
		current.Spec.IRSA.ManagedClusterARN != read.Spec.IRSA.ManagedClusterARN {
		return fmt.Errorf("the claim of ManagedCluster %q has changed", read.Name)
	}
	return nil
}

// applied is the state in AWS that a registration records in the field appliedHash.
type applied struct {
	// Mappings are the mappings that may exist. While one replaces another, both may.
	Mappings []irsa.Mapping `json:"mappings"`
	// Roles means that the server manages the role.
	Roles bool `json:"roles"`
	// Hash is the hash of all desired resources after a success.
	Hash string `json:"hash,omitempty"`
}

func (a applied) String() string {
	text, err := json.Marshal(a)
	utilruntime.Must(err) // strings can be encoded
	return string(text)
}

// parseApplied returns the zero value for a registration that records none.
func parseApplied(text string) applied {
	var a applied
	_ = json.Unmarshal([]byte(text), &a)
	return a
}

// begin returns the state during the transition to wanted.
func (a applied) begin(wanted applied) applied {
	begun := applied{Mappings: slices.Clone(wanted.Mappings), Roles: wanted.Roles}
	for _, mapping := range a.Mappings {
		if !slices.Contains(begun.Mappings, mapping) {
			begun.Mappings = append(begun.Mappings, mapping)
		}
	}
	return begun
}
