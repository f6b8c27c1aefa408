package csr

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
)

// mayRenew sends a SubjectAccessReview to check whether the requester, with its groups and extra fields, may renew
// certificates of a cluster.
func (a *Approver) mayRenew(ctx context.Context, request *certificatesv1.CertificateSigningRequest, cluster string) (*bool, error) {
	extra := make(map[string]authorizationv1.ExtraValue, len(request.Spec.Extra))
	for key, values := range request.Spec.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	review, err := a.options.Hub.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: request.Spec.Username, UID: request.Spec.UID, Groups: request.Spec.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: "renew", Group: registerv1alpha1.GroupName,
				Resource: "managedclusters", Subresource: "clientcertificates", Name: cluster,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("reviewing whether %s may renew certificates of ManagedCluster %q: %w", request.Spec.Username, cluster, err)
	}
	return new(review.Status.Allowed), nil
}
