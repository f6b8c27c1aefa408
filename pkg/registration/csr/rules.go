package csr

import (
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
)

// BootstrapGroup is the group of the hub's bootstrap tokens for managed clusters.
const BootstrapGroup = "system:bootstrappers:managedcluster"

// bootstrapUsers are the ServiceAccounts whose tokens clusters begin with.
var bootstrapUsers = sets.New(
	"system:serviceaccount:open-cluster-management:agent-registration-bootstrap",
	"system:serviceaccount:open-cluster-management:cluster-bootstrap",
)

// verdict is what becomes of a request.
type verdict int

const (
	// verdictIgnore leaves alone what is none of our requests, for good.
	verdictIgnore verdict = iota
	// verdictWait leaves a request pending until something changes, or somebody approves it by hand.
	verdictWait
	// verdictReview needs to know whether the hub lets the agent renew its certificate.
	verdictReview
	verdictApprove
	verdictDeny
)

// ReasonAutoApproved is the reason of every approval. Clients of Open Cluster Management look for
// it; the message says which rule approved the request.
const ReasonAutoApproved = "AutoApprovedByHubCSRApprovingController"

// Reasons of verdicts. The conditions of denied requests show them.
const (
	reasonRenewed      = "AgentRenewsItsCertificate"
	reasonAutoApproved = "AutoApprovedIdentity"
	reasonAccepted     = "ManagedClusterAccepted"
	reasonFirstAgent   = "FirstAgentOfManagedCluster"

	reasonDenied  = "ManagedClusterDenied"
	reasonDeleted = "ManagedClusterDeleted"

	reasonUnknown       = "ManagedClusterUnknown"
	reasonNotRegistered = "ManagedClusterNotRegistered"
	reasonUndecided     = "ManagedClusterNotDecided"
	reasonRenewal       = "RenewalToBeReviewed"
	reasonMayNotRenew   = "RenewalNotAllowed"
	reasonRequester     = "RequesterNotAllowed"
	reasonAfterDecision = "RequestedAfterDecision"

	reasonInvalid      = "InvalidRequest"
	reasonOtherDriver  = "OtherDriver"
	reasonOtherAgent   = "RequestedByOtherAgent"
	reasonOtherCluster = "OtherCluster"
	reasonEarlier      = "EarlierThanManagedCluster"
)

// ahead is how long before its ManagedCluster a request may come: public agents make
// both at the same time.
const ahead = time.Minute

// input is all that the rules look at.
type input struct {
	request *certificatesv1.CertificateSigningRequest
	// cluster and registration are those of the cluster that the request is labelled
	// with; nil where there are none.
	cluster      *clusterv1.ManagedCluster
	registration *registerv1alpha1.ManagedClusterRegistration
	// autoApproved are users whose requests, for clusters that they have created, need
	// nothing but that the cluster is accepted.
	autoApproved sets.Set[string]
	// mayRenew is whether the hub lets who asks renew certificates of the cluster; nil
	// while nobody has asked it.
	mayRenew *bool
}

// decision is what becomes of a request, and why.
type decision struct {
	verdict verdict
	reason  string
	message string
	// agent is who the certificate is for; nothing if the request is ignored.
	agent identity
	// renewal tells that the agent asks for its own next certificate.
	renewal bool
}

// judge says what becomes of a pending request.
func judge(in input) decision {
	// Without a look at the request: others could have it parsed over and over again.
	if requester := requesterOf(in.request); requester != "" && in.cluster != nil && requester != in.cluster.Name {
		return decision{verdict: verdictIgnore, reason: reasonOtherAgent, message: fmt.Sprintf("%s may ask only for its own certificate", in.request.Spec.Username)}
	}
	agent, err := parse(in.request)
	if err != nil {
		return decision{verdict: verdictIgnore, reason: reasonInvalid, message: err.Error()}
	}
	if in.cluster != nil && in.cluster.Name != agent.cluster || in.registration != nil && in.registration.Name != agent.cluster {
		return decision{verdict: verdictIgnore, reason: reasonOtherCluster, message: "the request is not of the cluster that it was found for"}
	}
	if in.registration != nil && in.registration.Spec.Driver != registerv1alpha1.DriverCSR {
		return decision{verdict: verdictIgnore, reason: reasonOtherDriver, message: fmt.Sprintf("the cluster registers with %s", in.registration.Spec.Driver)}
	}
	user := in.request.Spec.Username
	d := decision{verdict: verdictWait, agent: agent, renewal: user == agent.username()}
	if !d.renewal && strings.HasPrefix(user, identityPrefix) {
		return decision{verdict: verdictIgnore, reason: reasonOtherAgent, message: fmt.Sprintf("%s may ask only for its own certificate, not for one of %s", user, agent.username())}
	}
	requester := in.registration != nil && user != "" && user == in.registration.Spec.RequestedBy.Username

	switch {
	case in.cluster == nil && in.registration == nil:
		return d.because(reasonUnknown, "there is no ManagedCluster %s", agent.cluster)
	case in.cluster == nil || in.cluster.DeletionTimestamp != nil:
		return d.because(reasonDeleted, "the ManagedCluster is deleted").denyIf(d.renewal || requester)
	case in.registration == nil || in.registration.Spec.ManagedClusterUID != in.cluster.UID:
		return d.because(reasonNotRegistered, "the ManagedCluster is not registered yet")
	case !in.cluster.Spec.HubAcceptsClient && in.cluster.Status.Acceptance == nil:
		return d.because(reasonUndecided, "it is not decided yet whether the hub accepts the cluster")
	case !in.cluster.Spec.HubAcceptsClient:
		return d.because(reasonDenied, "the hub does not accept the cluster").denyIf(d.renewal || requester)
	case d.renewal:
		return d.judgeRenewal(in.mayRenew)
	}
	return d.judgeFirst(in, requester)
}

// judgeRenewal is for the own next certificate of an agent of an accepted cluster.
func (d decision) judgeRenewal(mayRenew *bool) decision {
	switch {
	case mayRenew == nil:
		d = d.because(reasonRenewal, "whether the agent may renew its certificate is not known yet")
		d.verdict = verdictReview
	case *mayRenew:
		d = d.because(reasonRenewed, "the agent renews its own certificate")
		d.verdict = verdictApprove
	default:
		d = d.because(reasonMayNotRenew, "the agent may not renew managedclusters/clientcertificates of the cluster")
	}
	return d
}

// judgeFirst is for the first certificate of an agent of an accepted cluster.
func (d decision) judgeFirst(in input, requester bool) decision {
	user, acceptance := in.request.Spec.Username, in.cluster.Status.Acceptance
	decided := acceptance != nil && acceptance.Accepted
	allowed := decided && mayRequest(in.request, acceptance.Requesters, requester)
	// Of both times the hub keeps whole seconds.
	inTime := decided && !in.request.CreationTimestamp.After(acceptance.DecidedAt.Truncate(time.Second))
	// A decision that names requesters is one against all others.
	first := requester && (allowed || !decided) && (in.registration.Status.CSR == nil || len(in.registration.Status.CSR.Agents) == 0)
	named := decided && len(acceptance.Requesters) > 0

	switch {
	case !named && in.request.CreationTimestamp.Add(ahead).Before(in.cluster.CreationTimestamp.Time):
		return d.because(reasonEarlier, "the request is of a former cluster of this name: it came before the ManagedCluster")
	case requester && (allowed || !named) && in.autoApproved.Has(user):
		d = d.because(reasonAutoApproved, "the hub accepts the cluster, and approves requests of %s", user)
	case allowed && inTime:
		d = d.because(reasonAccepted, "the cluster was accepted by %s", acceptance.DecidedBy)
	case first:
		d = d.because(reasonFirstAgent, "the hub accepts the cluster, which %s has registered, and no agent of it has a certificate yet", user)
	case allowed:
		return d.because(reasonAfterDecision, "the request came after the cluster was accepted: accept it again, or approve the request by hand")
	default:
		return d.because(reasonRequester, "%s may not request the first certificate of an agent of the cluster", user)
	}
	d.verdict = verdictApprove
	return d
}

// mayRequest tells whether who asks is one of those whose requests a decision approves.
func mayRequest(request *certificatesv1.CertificateSigningRequest, requesters []string, requester bool) bool {
	user := request.Spec.Username
	if len(requesters) > 0 {
		return user != "" && slices.Contains(requesters, user)
	}
	return requester || bootstrapUsers.Has(user) || slices.Contains(request.Spec.Groups, BootstrapGroup)
}

func (d decision) because(reason, format string, args ...any) decision {
	d.reason, d.message = reason, fmt.Sprintf(format, args...)
	return d
}

func (d decision) denyIf(condition bool) decision {
	if condition {
		d.verdict = verdictDeny
	}
	return d
}
