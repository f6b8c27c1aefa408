// Package csr is the registration driver in which agents authenticate with client certificates that the hub signs.
//
//	request ──► parse ──► judge ──► approved, denied, or ignored
//
// The rules of rules.go are pure. An Approver evaluates the requests of a cluster after each change of their inputs.
package csr

import (
	"context"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/signing"
)

// probeName is the prefix of the request that checks whether the hub signs certificates.
const probeName = "hub-apiserver-probe"

// Driver is the registration driver csr. It provisions nothing: an Approver decides the agents' requests.
type Driver struct {
	// Requests lists the requests with a cluster label. It may be nil.
	Requests certificateslisters.CertificateSigningRequestLister
	// Hub is used by Check.
	Hub kubernetes.Interface
}

// Name returns csr.
func (Driver) Name() registerv1alpha1.RegistrationDriver { return registerv1alpha1.DriverCSR }

// Check checks whether the hub signs client certificates.
func (d Driver) Check(ctx context.Context) ([]string, error) {
	refusal, err := signing.Probe(ctx, d.Hub, probeName, signing.DefaultTimeout)
	if err != nil || refusal == "" {
		return nil, err
	}
	return []string{fmt.Sprintf("the hub does not sign client certificates: %s; "+
		"start kube-controller-manager with --cluster-signing-cert-file and --cluster-signing-key-file, or start the server with --registration-auth=%s if the hub authenticates IAM roles",
		refusal, registerv1alpha1.DriverAWSIRSA)}, nil
}

// Groups returns the organization of the client certificates.
func (Driver) Groups(registration *registerv1alpha1.ManagedClusterRegistration) []string {
	return clusterv1.AgentGroups(registration.Name)[:1]
}

// Rules allows agents to create requests and to read their own by name. RBAC cannot restrict a list to a label, so it
// would show the requests of other clusters.
func (d Driver) Rules(registration *registerv1alpha1.ManagedClusterRegistration) []rbacv1.PolicyRule {
	rule := rbacv1.PolicyRule{APIGroups: []string{certificatesv1.GroupName}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"create"}}
	rules := []rbacv1.PolicyRule{rule}
	if own := d.requestsOf(registration.Name); len(own) > 0 {
		rule.ResourceNames, rule.Verbs = own, []string{"get", "list", "watch"}
		rules = append(rules, rule)
	}
	return rules
}

// requestsOf returns the names of the newest requests that agents of a cluster created, up to the limit of an Approver.
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
	slices.SortFunc(found, byAge)
	var names []string
	for _, request := range found[max(0, len(found)-DefaultMaxRequests):] {
		names = append(names, request.Name)
	}
	slices.Sort(names)
	return names
}

// Refuses returns why a cluster cannot be accepted: it registered with another driver.
func (Driver) Refuses(registration *registerv1alpha1.ManagedClusterRegistration) string {
	if driver := registration.Spec.Driver; driver != registerv1alpha1.DriverCSR {
		return fmt.Sprintf("the cluster registered with the driver %q, not with %q", driver, registerv1alpha1.DriverCSR)
	}
	return ""
}

// Provision does nothing, since certificates need only RBAC.
func (Driver) Provision(context.Context, *registerv1alpha1.ManagedClusterRegistration, bool) error {
	return nil
}

// Revoke does nothing. Certificates cannot be revoked, but have no permissions without RBAC, and the Approver denies
// their renewal.
func (Driver) Revoke(context.Context, *registerv1alpha1.ManagedClusterRegistration) error {
	return nil
}
