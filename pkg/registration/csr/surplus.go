package csr

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

const (
	// DefaultMaxRequests is the default limit of stored requests of a cluster's agents. The hub keeps decided requests
	// for an hour, and an agent creates one every few weeks.
	DefaultMaxRequests = 100

	// removalsPerSecond and removalsAtOnce bound the removals of all clusters, so that they do not delay other requests to
	// the hub. Their sum is the maximum in any second.
	removalsPerSecond = 40
	removalsAtOnce    = 10
	removalPause      = time.Second * removalsAtOnce / removalsPerSecond

	// maxCachedBytes bounds the size of a cached request. A request of an agent has about 2 KiB.
	maxCachedBytes = 32 << 10

	// requestsByRequester indexes requests by the cluster of the requesting agent, which may differ from the label.
	requestsByRequester = "registration-requests-by-requester"
)

// Small replaces a request that is too large for an agent by an empty one of the same name, which is ignored. It is the
// transform function of the cache of requests.
func Small(obj any) any {
	request, ok := obj.(*certificatesv1.CertificateSigningRequest)
	if !ok || request.Size() <= maxCachedBytes {
		return obj
	}
	return &certificatesv1.CertificateSigningRequest{
		TypeMeta: request.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name: request.Name, UID: request.UID, ResourceVersion: request.ResourceVersion, CreationTimestamp: request.CreationTimestamp,
			Labels: map[string]string{clusterv1.ClusterNameLabel: request.Labels[clusterv1.ClusterNameLabel]},
		},
		Spec: certificatesv1.CertificateSigningRequestSpec{Username: request.Spec.Username, SignerName: request.Spec.SignerName},
	}
}

// requesterOf returns the cluster of the requesting agent, or an empty string for other requesters.
func requesterOf(request *certificatesv1.CertificateSigningRequest) string {
	agent, err := parseUsername(request.Spec.Username)
	if err != nil {
		return ""
	}
	return agent.cluster
}

// removeSurplus removes the oldest requests of a cluster's agents beyond the limit, regardless of their label. It returns
// the time to the next removal.
func (a *Approver) removeSurplus(ctx context.Context, cluster string) (time.Duration, error) {
	requests := a.cached(requestsByRequester, cluster)
	surplus := len(requests) - a.options.MaxRequests
	if surplus <= 0 {
		return 0, nil
	}
	// Each removal sends an event and thereby begins another pass.
	if a.removals.TokensAt(a.options.Clock.Now()) < 1 {
		return removalPause, nil
	}
	slices.SortFunc(requests, byAge)
	klog.FromContext(ctx).Info("Removing the oldest certificate requests of a cluster that exceeds its limit",
		"cluster", cluster, "requests", len(requests), "limit", a.options.MaxRequests)
	for _, request := range requests[:surplus] {
		if !a.removals.AllowN(a.options.Clock.Now(), 1) {
			return removalPause, nil
		}
		// The server has permission to delete requests by label, not by name.
		err := a.options.Hub.CertificatesV1().CertificateSigningRequests().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{
			LabelSelector: labels.Set{clusterv1.ClusterNameLabel: request.Labels[clusterv1.ClusterNameLabel]}.String(),
			FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, request.Name).String(),
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return 0, fmt.Errorf("removing CertificateSigningRequest %q: %w", request.Name, err)
		}
		removedRequests.Inc()
	}
	return 0, nil
}

// byAge orders requests from oldest to newest. The order is the same on each replica.
func byAge(x, y *certificatesv1.CertificateSigningRequest) int {
	return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(x.Name, y.Name))
}

// considered returns the oldest pending requests of each requester for a cluster, up to the limit. Without the limit, a
// flood of requests would be parsed after each change.
func (a *Approver) considered(requests []*certificatesv1.CertificateSigningRequest) []*certificatesv1.CertificateSigningRequest {
	pending := slices.DeleteFunc(slices.Clone(requests), func(r *certificatesv1.CertificateSigningRequest) bool { return !isPending(r) })
	slices.SortFunc(pending, byAge)
	each := map[string]int{}
	return slices.DeleteFunc(pending, func(r *certificatesv1.CertificateSigningRequest) bool {
		each[r.Spec.Username]++
		return each[r.Spec.Username] > a.options.MaxRequests
	})
}

// clustersOf returns the clusters that a request concerns: the cluster of its label and the cluster of the
// requesting agent.
func clustersOf(request *certificatesv1.CertificateSigningRequest) []cache.ObjectName {
	if request.Labels[clusterv1.ClusterNameLabel] == "" {
		return nil
	}
	names := []cache.ObjectName{{Name: request.Labels[clusterv1.ClusterNameLabel]}}
	if requester := requesterOf(request); requester != "" && requester != names[0].Name {
		names = append(names, cache.ObjectName{Name: requester})
	}
	return names
}
