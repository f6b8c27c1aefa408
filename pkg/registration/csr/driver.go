// Package csr is the registration driver by which the agents of a cluster show the
// hub who they are with client certificates, which the hub signs.
//
//	request ──► parse ──► judge ──► approved, denied, or left as it is
//
// What an agent may get is decided by rules without any state (rules.go); an Approver
// looks at the requests of a cluster again whenever something changes that they depend on.
package csr

import (
	"context"
	"fmt"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
)

var _ registration.Driver = Driver{}

// Driver is the registration driver csr. It makes nothing for a cluster: its agents
// ask for certificates, and an Approver answers them for as long as the hub accepts it.
type Driver struct{}

// Name is csr.
func (Driver) Name() registerv1alpha1.RegistrationDriver { return registerv1alpha1.DriverCSR }

// Groups returns the group that client certificates have as their organization.
func (Driver) Groups(registration *registerv1alpha1.ManagedClusterRegistration) []string {
	return clusterv1.AgentGroups(registration.Name)[:1]
}

// Refuses refuses no cluster but one that registers by another driver.
func (Driver) Refuses(registration *registerv1alpha1.ManagedClusterRegistration) string {
	if driver := registration.Spec.Driver; driver != registerv1alpha1.DriverCSR {
		return fmt.Sprintf("the cluster registers with the driver %q, not with %q", driver, registerv1alpha1.DriverCSR)
	}
	return ""
}

// Provision makes nothing: RBAC for the groups of the cluster is all that a
// certificate needs.
func (Driver) Provision(context.Context, *registerv1alpha1.ManagedClusterRegistration, bool) error {
	return nil
}

// Revoke removes nothing. Certificates cannot be taken back; without RBAC they are
// worth nothing, and the Approver denies the requests for further ones.
func (Driver) Revoke(context.Context, *registerv1alpha1.ManagedClusterRegistration) error {
	return nil
}
