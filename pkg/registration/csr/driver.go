// Package csr is the registration driver by which the agents of a cluster show the
// hub who they are with client certificates, which the hub signs.
//
//	request ──► parse ──► judge ──► approved, denied, or left as it is
//
// What an agent may get is decided by rules without any state (rules.go); an Approver
// looks at the requests of a cluster again whenever something changes that they depend on.
package csr

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/pkg/signing"
)

// probeName is the prefix of the request by which the server finds out whether the hub signs.
const probeName = "hub-apiserver-probe"

var _ registration.Checker = Driver{}

// Driver is the registration driver csr. It makes nothing for a cluster: its agents
// ask for certificates, and an Approver answers them for as long as the hub accepts it.
type Driver struct {
	// Requests has the requests that are labelled with the name of a cluster; nil for none.
	Requests certificateslisters.CertificateSigningRequestLister
	// Hub is for Check.
	Hub kubernetes.Interface
}

// Name is csr.
func (Driver) Name() registerv1alpha1.RegistrationDriver { return registerv1alpha1.DriverCSR }

// Check finds out whether the hub signs client certificates.
func (d Driver) Check(ctx context.Context) ([]string, error) {
	refusal, err := signing.Probe(ctx, d.Hub, probeName, signing.DefaultTimeout)
	if err != nil || refusal == "" {
		return nil, err
	}
	return []string{fmt.Sprintf("the hub does not sign client certificates: %s; "+
		"give kube-controller-manager --cluster-signing-cert-file and --cluster-signing-key-file, or start the server with --registration-auth=%s where the hub knows IAM roles",
		refusal, registerv1alpha1.DriverAWSIRSA)}, nil
}

// Groups returns the group that client certificates have as their organization.
func (Driver) Groups(registration *registerv1alpha1.ManagedClusterRegistration) []string {
	return clusterv1.AgentGroups(registration.Name)[:1]
}

// Rules lets agents make requests, and read those that they have made themselves. Kubernetes
// RBAC cannot let them list requests by label: then they would read those of other clusters.
func (d Driver) Rules(registration *registerv1alpha1.ManagedClusterRegistration) []rbacv1.PolicyRule {
	rule := rbacv1.PolicyRule{APIGroups: []string{certificatesv1.GroupName}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"create"}}
	rules := []rbacv1.PolicyRule{rule}
	if own := d.requestsOf(registration.Name); len(own) > 0 {
		rule.ResourceNames, rule.Verbs = own, []string{"get", "list", "watch"}
		rules = append(rules, rule)
	}
	return rules
}

// requestsOf returns the names of the requests that agents of a cluster have made: the newest
// of them, if there are more than an Approver leaves.
func (d Driver) requestsOf(cluster string) []string {
	if d.Requests == nil {
		return nil
	}
	found, err := d.Requests.List(labels.Set{clusterv1.ClusterNameLabel: cluster}.AsSelector())
	if err != nil {
		return nil // it only reads a cache
	}
	group := clusterv1.AgentGroups(cluster)[0]
	found = slices.DeleteFunc(found, func(r *certificatesv1.CertificateSigningRequest) bool {
		return !slices.Contains(r.Spec.Groups, group)
	})
	slices.SortFunc(found, func(a, b *certificatesv1.CertificateSigningRequest) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	names := make([]string, 0, min(len(found), DefaultMaxRequests))
	for _, request := range found[:cap(names)] {
		names = append(names, request.Name)
	}
	slices.Sort(names)
	return names
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
