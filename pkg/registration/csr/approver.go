package csr

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/time/rate"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	certificatesinformers "k8s.io/client-go/informers/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/cluster/v1"
	clusterinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/cluster/v1"
	registerinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
)

const (
	// requestsByCluster indexes requests by their cluster label.
	requestsByCluster = "registration-requests-by-cluster"

	// reviewPeriod is the interval between access reviews of a renewal, whose result may change without an event.
	reviewPeriod = time.Minute
)

// Options configure an Approver. AutoApproved and MaxRequests are optional.
type Options struct {
	// Hub reads and writes CertificateSigningRequests.
	Hub kubernetes.Interface
	// CSRs caches the requests with a cluster label. The caller starts it.
	CSRs certificatesinformers.CertificateSigningRequestInformer

	// Clusters reads stored ManagedClusters for decisions. ClusterInformer sends events. The caller starts it.
	Clusters        clusterclient.ManagedClustersGetter
	ClusterInformer clusterinformers.ManagedClusterInformer

	// Records reads and writes stored registrations. Registrations sends events. The caller starts it.
	Records       registration.Records
	Registrations registerinformers.ManagedClusterRegistrationInformer

	// AutoApproved are users whose requests are approved for agents of accepted clusters that they created, even if no
	// decision covers the request.
	AutoApproved []string

	// MaxRequests bounds the stored requests of a cluster's agents, and the requests of one requester for one cluster
	// that are considered. It defaults to DefaultMaxRequests.
	MaxRequests int

	Clock clock.PassiveClock
}

// Approver approves and denies the certificate requests of agents. Caches only trigger it: it decides by the stored
// objects.
type Approver struct {
	reconcile.Loop
	options      Options
	autoApproved sets.Set[string]
	removals     *rate.Limiter
}

// NewApprover returns an Approver. It returns an error if the informer of requests was started.
func NewApprover(options Options) (*Approver, error) {
	a := &Approver{
		options: options, autoApproved: sets.New(options.AutoApproved...),
		removals: rate.NewLimiter(removalsPerSecond, removalsAtOnce),
	}
	if a.options.MaxRequests == 0 {
		a.options.MaxRequests = DefaultMaxRequests
	}
	err := a.options.CSRs.Informer().AddIndexers(cache.Indexers{
		requestsByRequester: reconcile.Index(func(request *certificatesv1.CertificateSigningRequest) []string {
			return nonempty(requesterOf(request))
		}),
		requestsByCluster: reconcile.Index(func(request *certificatesv1.CertificateSigningRequest) []string {
			return nonempty(request.Labels[clusterv1.ClusterNameLabel])
		}),
	})
	if err != nil {
		return nil, fmt.Errorf("indexing certificate requests: %w", err)
	}
	a.Loop = reconcile.Loop{
		Name:      "registration-csr",
		Reconcile: a.reconcile,
		Feeds: []reconcile.Feed{
			{Informer: a.options.CSRs.Informer(), Keys: reconcile.Keys(clustersOf)},
			{Informer: a.options.ClusterInformer.Informer(), Keys: reconcile.Own, Ignore: reconcile.Same(registration.SameDecision)},
			{Informer: a.options.Registrations.Informer(), Keys: reconcile.Own},
		},
	}
	return a, nil
}

func nonempty(value string) []string {
	if value == "" {
		return nil
	}
	return []string{value}
}

func (a *Approver) cached(index, value string) []*certificatesv1.CertificateSigningRequest {
	return reconcile.Indexed[*certificatesv1.CertificateSigningRequest](a.options.CSRs.Informer().GetIndexer(), index, value)
}

func (a *Approver) reconcile(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	goOn, surplusErr := a.removeSurplus(ctx, name.Name)
	again, err := a.settle(ctx, name.Name, a.cached(requestsByCluster, name.Name))
	if apierrors.IsConflict(err) {
		err = nil // the cache is behind and will send an event
	}
	if goOn > 0 && (again == 0 || goOn < again) {
		again = goOn
	}
	return again, errors.Join(err, surplusErr)
}

// ApprovePending approves the pending requests of a cluster that qualify according to the stored objects. It returns the
// names of all requests for first certificates that were approved since the decision about the cluster, by any replica.
// It may return names together with an error about other requests.
func (a *Approver) ApprovePending(ctx context.Context, cluster string) ([]string, error) {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		requests, err := a.list(ctx, cluster)
		if err != nil {
			return err
		}
		_, err = a.settle(ctx, cluster, requests)
		return err
	})
	names, namesErr := a.approved(ctx, cluster)
	return names, errors.Join(err, namesErr)
}

// approved returns the names of the requests for first certificates that were approved since the decision.
func (a *Approver) approved(ctx context.Context, name string) ([]string, error) {
	cluster, _, err := registration.Stored(ctx, a.options.Clusters, a.options.Records, name)
	if err != nil || cluster == nil || cluster.Status.Acceptance == nil || !cluster.Status.Acceptance.Accepted {
		return nil, err
	}
	requests, err := a.list(ctx, name)
	if err != nil {
		return nil, err
	}
	var names []string
	// The hub truncates both times to seconds.
	since := cluster.Status.Acceptance.DecidedAt.Truncate(time.Second)
	for _, request := range requests {
		approval := condition(request, certificatesv1.CertificateApproved)
		if approval != nil && approval.Reason == ReasonAutoApproved && requesterOf(request) == "" && !approval.LastUpdateTime.Time.Before(since) {
			names = append(names, request.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

func (a *Approver) list(ctx context.Context, cluster string) ([]*certificatesv1.CertificateSigningRequest, error) {
	found, err := a.options.Hub.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set{clusterv1.ClusterNameLabel: cluster}.String(),
	})
	if err != nil {
		return nil, fmt.Errorf("listing the CertificateSigningRequests of ManagedCluster %q: %w", cluster, err)
	}
	requests := make([]*certificatesv1.CertificateSigningRequest, 0, len(found.Items))
	for i := range found.Items {
		requests = append(requests, &found.Items[i])
	}
	return requests, nil
}

// settle decides the requests of a cluster that can be decided now, and returns the time to the next attempt.
func (a *Approver) settle(ctx context.Context, name string, requests []*certificatesv1.CertificateSigningRequest) (time.Duration, error) {
	if len(requests) == 0 {
		return 0, nil
	}
	cluster, record, err := registration.Stored(ctx, a.options.Clusters, a.options.Records, name)
	if err != nil {
		return 0, err
	}
	// The rules consider requests that were approved manually or just before a crash.
	if record, err = a.keepAgents(ctx, record, requests); err != nil {
		return 0, err
	}
	pending := a.considered(requests)
	var again time.Duration
	var errs []error
	for _, request := range pending {
		in := input{request: request, cluster: cluster, registration: record, autoApproved: a.autoApproved}
		d := judge(in)
		if d.verdict == verdictReview {
			if in.mayRenew, err = a.mayRenew(ctx, request, name); err != nil {
				errs = append(errs, err)
				continue
			}
			d = judge(in)
		}
		switch d.verdict {
		case verdictIgnore:
			klog.FromContext(ctx).Info("Ignored a certificate request", "request", request.Name, "cluster", name,
				"requester", request.Spec.Username, "reason", d.reason, "message", d.message)
		case verdictWait, verdictReview:
			klog.FromContext(ctx).V(2).Info("A certificate request stays pending", "request", request.Name, "cluster", name, "reason", d.reason, "message", d.message)
			if d.renewal && d.reason == reasonMayNotRenew {
				again = reviewPeriod
			}
		case verdictApprove, verdictDeny:
			decided, err := a.conclude(ctx, request, d)
			if err == nil && d.verdict == verdictApprove && !d.renewal {
				record, err = a.keepAgents(ctx, record, []*certificatesv1.CertificateSigningRequest{decided})
			}
			if err != nil {
				errs = append(errs, err)
			}
		}
	}
	return again, combine(errs)
}

// combine joins errors. If all are conflicts, the result is a conflict.
func combine(errs []error) error {
	others := slices.DeleteFunc(slices.Clone(errs), apierrors.IsConflict)
	if len(errs) > 0 && len(others) == 0 {
		return errs[0]
	}
	return errors.Join(others...)
}

// conclude writes the decision about a request, and returns the stored request.
func (a *Approver) conclude(ctx context.Context, request *certificatesv1.CertificateSigningRequest, d decision) (*certificatesv1.CertificateSigningRequest, error) {
	kind, reason := certificatesv1.CertificateApproved, ReasonAutoApproved
	if d.verdict == verdictDeny {
		kind, reason = certificatesv1.CertificateDenied, d.reason
	}
	now := metav1.NewTime(a.options.Clock.Now())
	update := request.DeepCopy()
	update.Status.Conditions = append(update.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: kind, Status: "True", Reason: reason, Message: d.message, LastUpdateTime: now, LastTransitionTime: now,
	})
	decided, err := a.options.Hub.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, request.Name, update, metav1.UpdateOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return request, nil
	case err != nil:
		return nil, fmt.Errorf("writing the decision about CertificateSigningRequest %q: %w", request.Name, err)
	}
	klog.FromContext(ctx).Info("Decided a certificate request", "request", request.Name, "agent", d.agent.username(),
		"requester", request.Spec.Username, "condition", kind, "reason", d.reason)
	return decided, nil
}

func isPending(request *certificatesv1.CertificateSigningRequest) bool {
	return len(request.Status.Certificate) == 0 && condition(request, certificatesv1.CertificateApproved) == nil &&
		condition(request, certificatesv1.CertificateDenied) == nil && condition(request, certificatesv1.CertificateFailed) == nil
}

func condition(request *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequestCondition {
	for i := range request.Status.Conditions {
		if request.Status.Conditions[i].Type == kind {
			return &request.Status.Conditions[i]
		}
	}
	return nil
}
