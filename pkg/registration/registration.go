// Package registration decides how managed clusters get access to the hub, and takes
// it away again.
//
// A ManagedCluster says whether the hub accepts a cluster. Its
// ManagedClusterRegistration, which the server alone writes, says who the cluster is:
// what it has claimed, and by which driver it shows the hub that it is that. Whatever
// is made for a cluster is made for its registration, and found again by it, so that
// nothing a cluster writes decides what is removed.
//
//	create ManagedCluster ──► claim (reserved) ──► ManagedCluster ──► registration
//	accept ──► driver provisions ──► access granted ──► condition HubAccepted
//	deny   ──► access revoked in the request ──► driver revokes
//	delete ──► as deny ──► works, namespace, roles removed ──► registration removed
package registration

import (
	"context"
	"errors"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
)

// ErrClaimed is what Reserve returns for an identity that another cluster holds.
var ErrClaimed = errors.New("the identity is claimed by another cluster")

// Holder is who holds an identity: a ManagedCluster, by its UID.
type Holder struct {
	ClusterName string
	ClusterUID  types.UID
	// Claim is what the holder has claimed.
	Claim registerv1alpha1.IRSAClaim
}

// Records is where registrations are kept. Every method reads and writes storage, no
// cache; errors are those of the API machinery.
type Records interface {
	// Get returns the registration of a cluster.
	Get(ctx context.Context, cluster string) (*registerv1alpha1.ManagedClusterRegistration, error)
	// Create stores a new one. It fails with AlreadyExists if the cluster has one.
	Create(ctx context.Context, registration *registerv1alpha1.ManagedClusterRegistration) (*registerv1alpha1.ManagedClusterRegistration, error)
	// Update stores what change makes of one; change may run several times, and its
	// error is returned. Nothing is written if it changes nothing.
	Update(ctx context.Context, cluster string, change func(*registerv1alpha1.ManagedClusterRegistration) error) (*registerv1alpha1.ManagedClusterRegistration, error)
	// Delete removes the registration with this UID.
	Delete(ctx context.Context, cluster string, uid types.UID) error

	// Reserve makes an identity, by its hash, that of a holder; ErrClaimed if it is that
	// of another one. What the holder of a ManagedCluster that no longer exists has
	// reserved is free. To reserve again what one holds renews it.
	Reserve(ctx context.Context, hash string, holder Holder) error
	// Reserved returns who holds an identity; nil if nobody does.
	Reserved(ctx context.Context, hash string) (*Holder, error)
	// Release gives an identity back, if this ManagedCluster holds it.
	Release(ctx context.Context, hash string, clusterUID types.UID) error
}

// Driver is a way by which clusters show the hub who they are. A third one is added
// without a change of the others: by a type that implements it, and a name.
type Driver interface {
	// Name is that of the driver in registrations and flags.
	Name() registerv1alpha1.RegistrationDriver
	// Groups returns the groups of the hub that the agents of a cluster are in by this
	// driver. RBAC is bound to no others.
	Groups(registration *registerv1alpha1.ManagedClusterRegistration) []string
	// Rules returns what the agents of a cluster may do on the hub by this driver, in addition
	// to what the agents of all clusters may do with their own cluster.
	Rules(registration *registerv1alpha1.ManagedClusterRegistration) []rbacv1.PolicyRule
	// Refuses tells why a cluster cannot be accepted as it is registered; empty if it can.
	Refuses(registration *registerv1alpha1.ManagedClusterRegistration) string
	// Provision makes what an accepted cluster needs in addition to RBAC, and repairs it. It may
	// be called again and again; where nothing has changed since it last succeeded it does
	// nothing, unless verify asks it to look.
	Provision(ctx context.Context, registration *registerv1alpha1.ManagedClusterRegistration, verify bool) error
	// Revoke removes what Provision has made, also where Provision failed half way. After
	// it has succeeded it does nothing.
	Revoke(ctx context.Context, registration *registerv1alpha1.ManagedClusterRegistration) error
}

// Decisions writes decisions about clusters.
type Decisions interface {
	// Decide accepts or denies the ManagedCluster with this UID, with all that a request
	// for it checks but who may ask for it.
	Decide(ctx context.Context, cluster string, uid types.UID, acceptance clusterv1.Acceptance) (*clusterv1.ManagedCluster, error)
}
