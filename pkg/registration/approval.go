package registration

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/klog/v2"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
)

// AutoAcceptedAnnotation is the annotation of a ManagedCluster with the time at which
// a rule of automatic approval accepted it.
const AutoAcceptedAnnotation = "open-cluster-management.io/automatically-accepted-on"

// AutoApproval are the rules by which clusters are accepted without anybody's
// decision. The zero value accepts none.
type AutoApproval struct {
	arns       []*regexp.Regexp
	identities []string
}

// NewAutoApproval returns rules that accept a cluster that has claimed an ARN which
// one of the patterns matches as a whole, and a cluster without a claim whose
// ManagedCluster was created by one of the users. It fails for a pattern that is no
// regular expression.
func NewAutoApproval(arnPatterns, csrIdentities []string) (AutoApproval, error) {
	a := AutoApproval{identities: slices.Clone(csrIdentities)}
	var errs []error
	for _, pattern := range arnPatterns {
		// By itself first: a pattern must not close the group that anchors it.
		if _, err := regexp.Compile(pattern); err != nil {
			errs = append(errs, fmt.Errorf("pattern %q of ARNs: %w", pattern, err))
			continue
		}
		whole, err := regexp.Compile(`\A(?:` + pattern + `)\z`)
		if err != nil {
			errs = append(errs, fmt.Errorf("pattern %q of ARNs: %w", pattern, err))
			continue
		}
		a.arns = append(a.arns, whole)
	}
	return a, errors.Join(errs...)
}

// approves tells whether a rule accepts a cluster, and which one. A claim is judged by
// patterns alone, and a cluster without one by who created it alone: neither stands in
// for the other.
func (a AutoApproval) approves(record *registerv1alpha1.ManagedClusterRegistration) (rule string, ok bool) {
	if record.Status.AutoApprovedAt != nil {
		return "", false
	}
	if claim := record.Spec.IRSA; claim != nil || record.Spec.Driver == registerv1alpha1.DriverAWSIRSA {
		if claim == nil || claim.Withdrawn {
			return "", false
		}
		for _, pattern := range a.arns {
			if pattern.MatchString(claim.ManagedClusterARN) {
				return "its ARN is approved automatically", true
			}
		}
		return "", false
	}
	creator := record.Spec.RequestedBy.Username
	if creator != "" && slices.Contains(a.identities, creator) {
		return "who created it is approved automatically", true
	}
	return "", false
}

// autoApprove accepts a cluster about which nobody has decided, if a rule says so.
func (c *Controller) autoApprove(ctx context.Context, cluster *clusterv1.ManagedCluster, record *registerv1alpha1.ManagedClusterRegistration) (time.Duration, error) {
	if cluster.Status.Acceptance != nil || cluster.Annotations[AutoAcceptedAnnotation] != "" {
		return 0, nil
	}
	rule, ok := c.autoApproval.approves(record)
	if !ok {
		return 0, nil
	}
	driver := c.driver(record.Spec.Driver)
	if driver == nil || driver.Refuses(record) != "" {
		return 0, nil
	}
	now := metav1.NewTime(c.clock.Now()).Rfc3339Copy()
	// The decision is stored with the ManagedCluster; it alone makes this happen once.
	_, err := c.decisions.Decide(ctx, cluster.Name, cluster.UID, clusterv1.Acceptance{
		Accepted: true, DecidedBy: user.APIServerUser, DecidedAt: now, Reason: rule,
	})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		klog.FromContext(ctx).V(2).Info("not approved automatically", "cluster", cluster.Name, "reason", err.Error())
		return refusedPeriod, nil // such as while a former namespace of its name is deleted
	}
	if err != nil {
		countFailure(record, operationApprove)
		return 0, fmt.Errorf("approving cluster %s automatically: %w", cluster.Name, err)
	}
	klog.FromContext(ctx).Info("approved a cluster automatically", "cluster", cluster.Name, "rule", rule)
	return 0, nil
}

// noteApproval notes that a rule has accepted a cluster, which the decision alone says at first.
func (c *Controller) noteApproval(ctx context.Context, cluster *clusterv1.ManagedCluster, record *registerv1alpha1.ManagedClusterRegistration) error {
	decision := cluster.Status.Acceptance
	if decision == nil || !decision.Accepted || decision.DecidedBy != user.APIServerUser {
		return nil
	}
	if record.Status.AutoApprovedAt == nil {
		at := decision.DecidedAt
		if err := c.updateRecord(ctx, record, func(r *registerv1alpha1.ManagedClusterRegistration) { r.Status.AutoApprovedAt = &at }); err != nil {
			return err
		}
	}
	if cluster.Annotations[AutoAcceptedAnnotation] != "" {
		return nil
	}
	_, err := c.change(ctx, cluster, func(update *clusterv1.ManagedCluster) bool {
		if update.Annotations[AutoAcceptedAnnotation] != "" {
			return false
		}
		metav1.SetMetaDataAnnotation(&update.ObjectMeta, AutoAcceptedAnnotation, decision.DecidedAt.UTC().Format(time.RFC3339))
		return true
	})
	return err
}
