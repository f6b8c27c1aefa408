package csr

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
)

// maxAgents bounds the agents that a registration names.
const maxAgents = 10

// keepAgents stores the agents whose first request was approved in the registration, and returns the stored
// registration. It runs after the approval, so that a crash in between loses nothing: the request remains.
func (a *Approver) keepAgents(ctx context.Context, record *registerv1alpha1.ManagedClusterRegistration, requests []*certificatesv1.CertificateSigningRequest) (*registerv1alpha1.ManagedClusterRegistration, error) {
	if record == nil || record.Spec.Driver != registerv1alpha1.DriverCSR {
		return record, nil
	}
	approved := approvedAgents(record, requests)
	if namesAll(record, approved) {
		return record, nil
	}
	updated, err := a.options.Records.Update(ctx, record.Name, func(current *registerv1alpha1.ManagedClusterRegistration) error {
		if current.UID != record.UID || namesAll(current, approved) {
			return nil
		}
		var agents []string
		if current.Status.CSR != nil {
			agents = current.Status.CSR.Agents
		}
		agents = slices.DeleteFunc(slices.Clone(agents), func(agent string) bool { return slices.Contains(approved, agent) })
		agents = append(agents, approved...)
		current.Status.CSR = &registerv1alpha1.CSRStatus{Agents: agents[max(0, len(agents)-maxAgents):]}
		return nil
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("storing the agents of ManagedCluster %q: %w", record.Name, err)
	}
	return updated, nil
}

// approvedAgents returns the last agents of a registration whose first request is approved, newest last.
func approvedAgents(record *registerv1alpha1.ManagedClusterRegistration, requests []*certificatesv1.CertificateSigningRequest) []string {
	type approval struct {
		certificatesv1.CertificateSigningRequestCondition
		agent string
	}
	var approvals []approval
	for _, request := range requests {
		granted := condition(request, certificatesv1.CertificateApproved)
		// Requests may belong to a previous cluster of the same name.
		if granted == nil || granted.LastUpdateTime.Before(&record.CreationTimestamp) {
			continue
		}
		agent, err := parse(request)
		if err != nil || agent.cluster != record.Name || agent.username() == request.Spec.Username {
			continue
		}
		approvals = append(approvals, approval{CertificateSigningRequestCondition: *granted, agent: agent.agent})
	}
	slices.SortFunc(approvals, func(x, y approval) int {
		return cmp.Or(x.LastUpdateTime.Compare(y.LastUpdateTime.Time), cmp.Compare(x.agent, y.agent))
	})
	var agents []string
	for _, approval := range approvals {
		agents = slices.DeleteFunc(agents, func(agent string) bool { return agent == approval.agent })
		agents = append(agents, approval.agent)
	}
	return agents[max(0, len(agents)-maxAgents):]
}

func namesAll(record *registerv1alpha1.ManagedClusterRegistration, agents []string) bool {
	for _, agent := range agents {
		if record.Status.CSR == nil || !slices.Contains(record.Status.CSR.Agents, agent) {
			return false
		}
	}
	return true
}
