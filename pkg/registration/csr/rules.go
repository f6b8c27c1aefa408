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
	"open-cluster-management.io/hub-apiserver/pkg/rehoming"
)

// BootstrapGroup is the group of the hub's bootstrap tokens for managed clusters.
const BootstrapGroup = "system:bootstrappers:managedcluster"

// bootstrapUsers are the ServiceAccounts of the tokens with which clusters join.
var bootstrapUsers = sets.New(
	"system:serviceaccount:open-cluster-management:agent-registration-bootstrap",
	"system:serviceaccount:open-cluster-management:cluster-bootstrap",
)

// verdict is the result of the rules for a request.
type verdict int

const (
	// verdictIgnore permanently ignores a request that is not from an agent.
	verdictIgnore verdict = iota
	// verdictWait leaves a request pending until an input changes or someone approves it manually.
	verdictWait
	// verdictReview requires an access review of the renewal.
	verdictReview
	verdictApprove
	verdictDeny
)

// ReasonAutoApproved is the reason of every approval, which OCM clients match. The message names the rule.
const ReasonAutoApproved = "AutoApprovedByHubCSRApprovingController"

// Reasons of verdicts. The conditions of denied requests show them.
const (
	reasonRenewed      = "AgentRenewsItsCertificate"
	reasonAutoApproved = "AutoApprovedIdentity"
	reasonAccepted     = "ManagedClusterAccepted"
	reasonFirstAgent   = "FirstAgentOfManagedCluster"
	reasonProved       = "AdoptedManagedClusterProved"

	reasonDenied  = "ManagedClusterDenied"
	reasonDeleted = "ManagedClusterDeleted"

	reasonUnknown       = "ManagedClusterUnknown"
	reasonNotRegistered = "ManagedClusterNotRegistered"
	reasonUndecided     = "ManagedClusterNotDecided"
	reasonRenewal       = "RenewalToBeReviewed"
	reasonMayNotRenew   = "RenewalNotAllowed"
	reasonRequester     = "RequesterNotAllowed"
	reasonAfterDecision = "RequestedAfterDecision"
	reasonNotProved     = "AdoptedManagedClusterNotProved"

	reasonInvalid      = "InvalidRequest"
	reasonOtherDriver  = "OtherDriver"
	reasonOtherAgent   = "RequestedByOtherAgent"
	reasonOtherCluster = "OtherCluster"
	reasonEarlier      = "EarlierThanManagedCluster"
)

// ahead is the maximum time by which a request may be older than its ManagedCluster, since upstream OCM agents create
// both concurrently.
const ahead = time.Minute

// input contains all inputs of the rules.
type input struct {
	request *certificatesv1.CertificateSigningRequest
	// cluster and registration are the objects that the cluster label names, each nil if there is none.
	cluster      *clusterv1.ManagedCluster
	registration *registerv1alpha1.ManagedClusterRegistration
	// autoApproved are users whose requests are approved for accepted clusters that they created.
	autoApproved sets.Set[string]
	// mayRenew is the result of the access review of the renewal. It is nil before the review.
	mayRenew *bool
}

// decision is a verdict with its reason.
type decision struct {
	verdict verdict
	reason  string
	message string
	// agent is the subject of the certificate. It is empty if the request is ignored.
	agent identity
	// renewal means that the agent renews its own certificate.
	renewal bool
}

// judge returns the decision about a pending request.
func judge(in input) decision {
	// This check precedes the parsing, so that other agents cannot cause its cost repeatedly.
	if requester := requesterOf(in.request); requester != "" && in.cluster != nil && requester != in.cluster.Name {
		return decision{verdict: verdictIgnore, reason: reasonOtherAgent, message: fmt.Sprintf("%s can only request its own certificate", in.request.Spec.Username)}
	}
	agent, err := parse(in.request)
	if err != nil {
		return decision{verdict: verdictIgnore, reason: reasonInvalid, message: err.Error()}
	}
	if in.cluster != nil && in.cluster.Name != agent.cluster || in.registration != nil && in.registration.Name != agent.cluster {
		return decision{verdict: verdictIgnore, reason: reasonOtherCluster, message: "the request does not belong to the cluster of its label"}
	}
	if in.registration != nil && in.registration.Spec.Driver != registerv1alpha1.DriverCSR {
		return decision{verdict: verdictIgnore, reason: reasonOtherDriver, message: fmt.Sprintf("the cluster registered with the driver %s", in.registration.Spec.Driver)}
	}
	user := in.request.Spec.Username
	d := decision{verdict: verdictWait, agent: agent, renewal: user == agent.username()}
	if !d.renewal && strings.HasPrefix(user, identityPrefix) {
		return decision{verdict: verdictIgnore, reason: reasonOtherAgent, message: fmt.Sprintf("%s can only request its own certificate, not one of %s", user, agent.username())}
	}
	requester := in.registration != nil && user != "" && user == in.registration.Spec.RequestedBy.Username

	switch {
	case in.cluster == nil && in.registration == nil:
		return d.because(reasonUnknown, "ManagedCluster %q does not exist", agent.cluster)
	case in.cluster == nil || in.cluster.DeletionTimestamp != nil:
		return d.because(reasonDeleted, "the ManagedCluster is deleted").denyIf(d.renewal || requester)
	case in.registration == nil || in.registration.Spec.ManagedClusterUID != in.cluster.UID:
		return d.because(reasonNotRegistered, "the ManagedCluster is not registered yet")
	case !in.cluster.Spec.HubAcceptsClient && in.cluster.Status.Acceptance == nil:
		return d.because(reasonUndecided, "the cluster is not accepted yet")
	case !in.cluster.Spec.HubAcceptsClient:
		return d.because(reasonDenied, "the hub does not accept the cluster").denyIf(d.renewal || requester)
	case d.renewal:
		return d.judgeRenewal(in.mayRenew)
	case adopted(in.cluster, in.registration):
		return d.judgeAdopted(in)
	}
	return d.judgeFirst(in, requester)
}

// adopted reports whether a cluster was adopted from another hub, and nobody has decided about it on this hub. A
// decision of the other hub must not cover a request to this one: it may be newer than a request that somebody prepared.
// The clock of the other hub may be wrong, so a decision is one of this hub if it is not the adopted one.
func adopted(cluster *clusterv1.ManagedCluster, registration *registerv1alpha1.ManagedClusterRegistration) bool {
	adoptedAt, found := registration.Annotations[rehoming.AdoptedAnnotation]
	if !found {
		return false
	}
	decision := cluster.Status.Acceptance
	if decision == nil || decision.DecidedAt.IsZero() {
		return true
	}
	if former, recorded := registration.Annotations[rehoming.DecisionAnnotation]; recorded {
		at, err := time.Parse(time.RFC3339, former)
		return former != "" && (err != nil || decision.DecidedAt.Truncate(time.Second).Equal(at))
	}
	// A clusteradm before v0.1.0 has not recorded the decision.
	at, err := time.Parse(time.RFC3339, adoptedAt)
	return err != nil || !decision.DecidedAt.After(at)
}

// judgeAdopted decides a request for an adopted cluster. All clusters may have the same bootstrap identity, so only the
// key that its agent reported to the former hub identifies the cluster.
func (d decision) judgeAdopted(in input) decision {
	err := rehoming.Verify(in.request.Annotations[rehoming.ProofAnnotation], in.registration.Annotations[rehoming.KeyAnnotation], in.request.Spec.Request)
	if err != nil {
		return d.because(reasonNotProved, "the cluster was adopted from another hub, and the request does not prove that it comes from that cluster: %v. Check it, and accept the cluster again", err)
	}
	d = d.because(reasonProved, "the cluster was adopted from another hub, and the request proves that it comes from that cluster")
	d.verdict = verdictApprove
	return d
}

// judgeRenewal decides the renewal of a certificate by an agent of an accepted cluster.
func (d decision) judgeRenewal(mayRenew *bool) decision {
	switch {
	case mayRenew == nil:
		d = d.because(reasonRenewal, "the permission of the agent to renew its certificate is not reviewed yet")
		d.verdict = verdictReview
	case *mayRenew:
		d = d.because(reasonRenewed, "the agent renews its own certificate")
		d.verdict = verdictApprove
	default:
		d = d.because(reasonMayNotRenew, "the agent has no permission to renew managedclusters/clientcertificates of the cluster")
	}
	return d
}

// judgeFirst decides the first certificate of an agent of an accepted cluster.
func (d decision) judgeFirst(in input, requester bool) decision {
	user, acceptance := in.request.Spec.Username, in.cluster.Status.Acceptance
	decided := acceptance != nil && acceptance.Accepted
	allowed := decided && mayRequest(in.request, acceptance.Requesters, requester)
	// The hub truncates both times to seconds.
	inTime := decided && !in.request.CreationTimestamp.After(acceptance.DecidedAt.Truncate(time.Second))
	// A decision that names requesters excludes all others.
	first := requester && (allowed || !decided) && (in.registration.Status.CSR == nil || len(in.registration.Status.CSR.Agents) == 0)
	named := decided && len(acceptance.Requesters) > 0

	switch {
	case !named && in.request.CreationTimestamp.Add(ahead).Before(in.cluster.CreationTimestamp.Time):
		return d.because(reasonEarlier, "the request is older than the ManagedCluster and belongs to a previous cluster of this name")
	case requester && (allowed || !named) && in.autoApproved.Has(user):
		d = d.because(reasonAutoApproved, "the hub accepts the cluster and approves requests of %s automatically", user)
	case allowed && inTime:
		d = d.because(reasonAccepted, "the cluster was accepted by %s", acceptance.DecidedBy)
	case first:
		d = d.because(reasonFirstAgent, "the hub accepts the cluster, %s registered it, and none of its agents has a certificate yet", user)
	case allowed:
		return d.because(reasonAfterDecision, "the request was created after the cluster was accepted: accept the cluster again, or approve the request manually")
	default:
		return d.because(reasonRequester, "%s has no permission to request the first certificate of an agent of the cluster", user)
	}
	d.verdict = verdictApprove
	return d
}

// mayRequest reports whether a decision approves requests of the requester.
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
