// Package registration grants managed clusters access to the hub, and revokes it.
//
// A ManagedCluster records whether the hub accepts a cluster. Its ManagedClusterRegistration, which only the server
// writes, records the identity of the cluster: the claim and the driver that verifies it. The server creates and
// removes all objects of a cluster according to the registration, so that a managed cluster cannot influence which
// objects are removed.
//
//	create ManagedCluster ──► claim (reserved) ──► ManagedCluster ──► registration
//	accept ──► driver provisions ──► access granted ──► condition HubAccepted
//	deny   ──► access revoked in the request ──► driver revokes
//	delete ──► as deny ──► ManifestWorks, namespace, roles removed ──► registration removed
package registration

import (
	"context"
	"errors"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
)

// ErrClaimed is returned by Reserve for an identity that another cluster holds.
var ErrClaimed = errors.New("the identity is claimed by another cluster")

// Holder is the ManagedCluster that holds an identity.
type Holder struct {
	ClusterName string
	ClusterUID  types.UID
	// Claim is the holder's claim.
	Claim registerv1alpha1.IRSAClaim
}

// Records stores registrations. Its methods use no cache and return API errors.
type Records interface {
	// Get returns the registration of a cluster.
	Get(ctx context.Context, cluster string) (*registerv1alpha1.ManagedClusterRegistration, error)
	// Create stores a new registration. It returns AlreadyExists if the cluster has one.
	Create(ctx context.Context, registration *registerv1alpha1.ManagedClusterRegistration) (*registerv1alpha1.ManagedClusterRegistration, error)
	// Update applies change to a registration and stores it if it differs. It may call change several times, and returns
	// its error.
	Update(ctx context.Context, cluster string, change func(*registerv1alpha1.ManagedClusterRegistration) error) (*registerv1alpha1.ManagedClusterRegistration, error)
	// Delete deletes the registration with this UID.
	Delete(ctx context.Context, cluster string, uid types.UID) error

	// Reserve reserves the identity with this hash for a holder, or renews its reservation. It returns ErrClaimed if
	// another ManagedCluster that still exists holds it.
	Reserve(ctx context.Context, hash string, holder Holder) error
	// Reserved returns the holder of an identity, or nil if it is free.
	Reserved(ctx context.Context, hash string) (*Holder, error)
	// Release frees an identity if this ManagedCluster holds it.
	Release(ctx context.Context, hash string, clusterUID types.UID) error
}

// Driver authenticates the agents of clusters to the hub. A new driver is a type that implements Driver and a name;
// other drivers do not change.
type Driver interface {
	// Name returns the name of the driver in registrations and flags.
	Name() registerv1alpha1.RegistrationDriver
	// Groups returns the groups of a cluster's agents on the hub. RBAC binds only these.
	Groups(registration *registerv1alpha1.ManagedClusterRegistration) []string
	// Rules returns the rules that the agents of a cluster need for this driver, in addition to the rules of all
	// agents.
	Rules(registration *registerv1alpha1.ManagedClusterRegistration) []rbacv1.PolicyRule
	// Refuses returns why a cluster cannot be accepted with this registration, or an empty string.
	Refuses(registration *registerv1alpha1.ManagedClusterRegistration) string
	// Check returns the hub's missing prerequisites, each with its remedy. An error means that they are unknown.
	Check(ctx context.Context) ([]string, error)
	// Provision creates or repairs the resources that an accepted cluster needs in addition to RBAC. If it succeeded
	// before for this registration, it does nothing unless verify is true.
	Provision(ctx context.Context, registration *registerv1alpha1.ManagedClusterRegistration, verify bool) error
	// Revoke removes the resources that Provision created, even if Provision failed. After a success it
	// does nothing.
	Revoke(ctx context.Context, registration *registerv1alpha1.ManagedClusterRegistration) error
}
