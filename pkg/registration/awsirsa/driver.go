// Package awsirsa is the driver of registrations by AWS IAM roles: a cluster on EKS
// acts on the hub, which is on EKS too or runs aws-iam-authenticator, by a role that only
// it can assume.
package awsirsa

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
)

// Cloud makes and removes what a cluster has in AWS. Its errors are tried again by
// who calls it.
type Cloud interface {
	// Provision makes AWS have what is desired. fresh says that nothing of it is expected
	// to exist: then it just makes it.
	Provision(ctx context.Context, desired irsa.Desired, fresh bool) error
	// Remove removes it; what is not there is no error.
	Remove(ctx context.Context, desired irsa.Desired) error
	// CheckAccessEntries returns why the hub takes no access entries, with the remedy, or
	// nothing if it does. It only reads.
	CheckAccessEntries(ctx context.Context) (string, error)
}

// Options are what a Driver needs. All but ResourceTags are required.
type Options struct {
	// HubARN is that of the EKS cluster that the hub is. With the mapping ConfigMap the hub
	// may be any cluster whose aws-iam-authenticator has this name as its cluster ID.
	HubARN irsa.ARN
	// Mapping is how the hub's EKS cluster knows which group an IAM role belongs to.
	Mapping irsa.Mapping
	// ManageRoles is whether the roles in the hub's account are ours to make.
	ManageRoles bool
	// ResourceTags are further tags of everything that is made.
	ResourceTags map[string]string
	Cloud        Cloud
	// Hub has the ConfigMap aws-auth.
	Hub     kubernetes.Interface
	Records registration.Records
}

// Driver registers clusters by IAM roles. That AWS may have something of a cluster is
// stored in its registration before the first request that makes something, and until
// after the last one that removes it.
type Driver struct {
	options Options
	auth    *awsAuth
}

var _ registration.Checker = (*Driver)(nil)

// New returns a Driver. It fails for options that no cluster could be registered with.
func New(o Options) (*Driver, error) {
	errs := []error{irsa.ValidateResourceTags(o.ResourceTags)}
	if err := o.HubARN.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("the ARN of the hub: %w", err))
	}
	if o.Mapping != irsa.AccessEntry && o.Mapping != irsa.ConfigMap {
		errs = append(errs, fmt.Errorf("mapping %q must be %s or %s", o.Mapping, irsa.AccessEntry, irsa.ConfigMap))
	}
	if o.Cloud == nil || o.Hub == nil || o.Records == nil {
		errs = append(errs, errors.New("the driver aws-irsa needs a cloud, a client of the hub and the registrations"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	o.ResourceTags = maps.Clone(o.ResourceTags)
	return &Driver{options: o, auth: &awsAuth{configMaps: o.Hub.CoreV1().ConfigMaps(authNamespace)}}, nil
}

// Name is aws-irsa.
func (d *Driver) Name() registerv1alpha1.RegistrationDriver { return registerv1alpha1.DriverAWSIRSA }

// Check finds out whether the hub takes the mapping of roles that this driver makes.
func (d *Driver) Check(ctx context.Context) ([]string, error) {
	var problem string
	var err error
	if d.options.Mapping == irsa.ConfigMap {
		problem, err = d.auth.check(ctx)
	} else {
		problem, err = d.options.Cloud.CheckAccessEntries(ctx)
	}
	if err != nil || problem == "" {
		return nil, err
	}
	return []string{problem}, nil
}

// Groups returns the groups of the mapping that the hub uses, and of one that it used
// before for as long as that may still be there.
func (d *Driver) Groups(record *registerv1alpha1.ManagedClusterRegistration) []string {
	mappings := []irsa.Mapping{d.options.Mapping}
	if state := record.Status.IRSA; state != nil && state.Provisioned {
		mappings = append(mappings, parseApplied(state.AppliedHash).mappings()...)
	}
	groups := sets.New[string]()
	for _, mapping := range mappings {
		groups.Insert(irsa.Desired{ClusterName: record.Name, Mapping: mapping}.Groups()...)
	}
	return sets.List(groups)
}

// Rules are none: tokens of IAM roles need nothing of the hub.
func (*Driver) Rules(*registerv1alpha1.ManagedClusterRegistration) []rbacv1.PolicyRule { return nil }

// Refuses tells why a cluster cannot be accepted as it is registered.
func (d *Driver) Refuses(record *registerv1alpha1.ManagedClusterRegistration) string {
	switch claim := record.Spec.IRSA; {
	case claim == nil:
		return "it has not claimed to be an EKS cluster, which this hub registers clusters by"
	case claim.Withdrawn:
		return "its claim to be an EKS cluster is withdrawn, and not all that was made for it is removed yet"
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

// Provision makes AWS, and the ConfigMap aws-auth where that maps roles, have what a
// cluster needs. It asks nothing of them if its registration says that they do, unless
// it is to verify that.
func (d *Driver) Provision(ctx context.Context, record *registerv1alpha1.ManagedClusterRegistration, verify bool) error {
	if why := d.Refuses(record); why != "" {
		return errors.New(why)
	}
	desired, err := d.desired(record)
	if err != nil {
		return err
	}
	wanted := applied{mapping: desired.Mapping, roles: desired.ManageRoles, hash: desired.Hash()}
	if state := record.Status.IRSA; !verify && state != nil && state.Provisioned && state.AppliedHash == wanted.String() {
		return nil
	}

	// What is stored counts, and not what the caller has read some time ago.
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
		return fmt.Errorf("noting what is about to be made for cluster %s: %w", record.Name, err)
	}
	if err := d.options.Cloud.Provision(ctx, desired, fresh); err != nil {
		return err
	}
	if desired.Mapping == irsa.ConfigMap {
		if err := d.auth.add(ctx, entryOf(desired)); err != nil {
			return err
		}
	}
	if err := d.unmap(ctx, desired, before); err != nil {
		return err
	}
	// Another server may have revoked meanwhile, which has taken over from this one: then
	// it has missed what was made since, and does it again by this.
	return d.note(ctx, record, func(state *registerv1alpha1.IRSAStatus) {
		state.Provisioned, state.AppliedHash = true, wanted.String()
	})
}

// unmap removes the mapping of a kind that the hub was told to use before.
func (d *Driver) unmap(ctx context.Context, desired irsa.Desired, before applied) error {
	for _, mapping := range before.mappings() {
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

// Revoke removes what Provision has made, by the registration alone.
func (d *Driver) Revoke(ctx context.Context, record *registerv1alpha1.ManagedClusterRegistration) error {
	state := record.Status.IRSA
	if state == nil || !state.Provisioned {
		return nil
	}
	if record.Spec.IRSA == nil {
		return fmt.Errorf("AWS has the role %s of cluster %s, whose registration has no claim any more", state.HubRoleARN, record.Name)
	}
	desired, err := d.desired(record)
	if err != nil {
		return err
	}
	if err := sameIdentity(record, desired); err != nil {
		return err
	}
	was := parseApplied(state.AppliedHash)
	desired.ManageRoles = was.roles || was.mapping == "" && desired.ManageRoles
	mappings := was.mappings()
	if len(mappings) == 0 {
		mappings = []irsa.Mapping{desired.Mapping}
	}
	for _, mapping := range mappings {
		desired.Mapping = mapping
		if err := d.remove(ctx, desired); err != nil {
			return err
		}
	}
	return d.note(ctx, record, func(state *registerv1alpha1.IRSAStatus) { state.Provisioned, state.AppliedHash = false, "" })
}

func (d *Driver) remove(ctx context.Context, desired irsa.Desired) error {
	// Without its mapping the role is of no use on the hub: it goes first.
	if desired.Mapping == irsa.ConfigMap {
		if err := d.auth.remove(ctx, desired.HubRoleARN()); err != nil {
			return err
		}
		if !desired.ManageRoles {
			return nil // AWS has nothing of it
		}
	}
	return d.options.Cloud.Remove(ctx, desired)
}

// note stores what is the state in AWS by now.
func (d *Driver) note(ctx context.Context, record *registerv1alpha1.ManagedClusterRegistration, change func(*registerv1alpha1.IRSAStatus)) error {
	_, err := d.options.Records.Update(ctx, record.Name, func(current *registerv1alpha1.ManagedClusterRegistration) error {
		if current.UID != record.UID || current.Status.IRSA == nil {
			return fmt.Errorf("the registration of cluster %s was replaced", record.Name)
		}
		change(current.Status.IRSA)
		return nil
	})
	if err != nil {
		return fmt.Errorf("noting what AWS has of cluster %s: %w", record.Name, err)
	}
	return nil
}

// desired is what AWS should have for a registration.
func (d *Driver) desired(record *registerv1alpha1.ManagedClusterRegistration) (irsa.Desired, error) {
	managed, err := irsa.ParseARN(record.Spec.IRSA.ManagedClusterARN)
	if err != nil {
		return irsa.Desired{}, fmt.Errorf("the ARN that cluster %s has claimed: %w", record.Name, err)
	}
	desired := irsa.Desired{
		Identity:    irsa.Identity{Hub: d.options.HubARN, Managed: managed},
		ManageRoles: d.options.ManageRoles, Mapping: d.options.Mapping,
		ClusterName: record.Name, ResourceTags: d.options.ResourceTags,
	}
	if err := desired.Validate(); err != nil {
		return irsa.Desired{}, fmt.Errorf("the identity of cluster %s: %w", record.Name, err)
	}
	return desired, nil
}

// sameIdentity tells whether what was made for a registration is what it would be now.
// It is not when the hub was told that it is another EKS cluster; what the former one
// has cannot be found by the names of this one.
func sameIdentity(record *registerv1alpha1.ManagedClusterRegistration, desired irsa.Desired) error {
	state := record.Status.IRSA
	if state == nil || !state.Provisioned || state.HubRoleARN == desired.HubRoleARN() {
		return nil
	}
	return fmt.Errorf("AWS has the role %s of cluster %s, which is not that of a cluster of the hub %s: with the ARN of the former hub it can be removed",
		state.HubRoleARN, record.Name, desired.Hub)
}

// sameClaim tells whether a registration is still what it was when it was read.
func sameClaim(read, current *registerv1alpha1.ManagedClusterRegistration) error {
	if read.UID != current.UID || current.Spec.IRSA == nil || current.Spec.IRSA.Withdrawn ||
		current.Spec.IRSA.ManagedClusterARN != read.Spec.IRSA.ManagedClusterARN {
		return fmt.Errorf("the claim of cluster %s has changed", read.Name)
	}
	return nil
}

// applied is what the registration of a cluster says that AWS was told: by which
// mapping, whether the role is ours, and the hash of it all once that is done. While
// one mapping takes the place of another, both may be there.
type applied struct {
	mapping, former irsa.Mapping
	roles           bool
	hash            string
}

const (
	withRoles  = "+roles"
	withFormer = "+"
)

// String is what the field appliedHash has: <mapping>[+roles][+<former mapping>]:<hash>.
func (a applied) String() string {
	if a.mapping == "" {
		return ""
	}
	text := string(a.mapping)
	if a.roles {
		text += withRoles
	}
	if a.former != "" {
		text += withFormer + string(a.former)
	}
	return text + ":" + a.hash
}

func parseApplied(text string) applied {
	what, hash, ok := strings.Cut(text, ":")
	if !ok {
		return applied{}
	}
	parts := strings.Split(what, withFormer)
	a := applied{mapping: irsa.Mapping(parts[0]), hash: hash}
	for _, part := range parts[1:] {
		if withFormer+part == withRoles {
			a.roles = true
		} else {
			a.former = irsa.Mapping(part)
		}
	}
	return a
}

// mappings are those that may be there.
func (a applied) mappings() []irsa.Mapping {
	var mappings []irsa.Mapping
	for _, mapping := range []irsa.Mapping{a.mapping, a.former} {
		if mapping != "" {
			mappings = append(mappings, mapping)
		}
	}
	return mappings
}

// begin is the state while wanted is being made of this one.
func (a applied) begin(wanted applied) applied {
	begun := applied{mapping: wanted.mapping, roles: wanted.roles}
	for _, mapping := range a.mappings() {
		if mapping != wanted.mapping {
			begun.former = mapping
		}
	}
	return begun
}
