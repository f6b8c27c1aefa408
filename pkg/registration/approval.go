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
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

// AutoAcceptedAnnotation records on a ManagedCluster when a rule of automatic approval accepted it.
const AutoAcceptedAnnotation = "open-cluster-management.io/automatically-accepted-on"

// AutoApproval holds the rules of automatic approval. The zero value accepts no cluster.
type AutoApproval struct {
	arns       []*regexp.Regexp
	identities []string
}

// NewAutoApproval returns rules that accept a cluster if a pattern matches its whole claimed ARN or, for a cluster
// without a claim, if one of the identities created its ManagedCluster. It returns an error for an invalid regular
// expression.
func NewAutoApproval(arnPatterns, csrIdentities []string) (AutoApproval, error) {
	a := AutoApproval{identities: slices.Clone(csrIdentities)}
	var errs []error
	for _, pattern := range arnPatterns {
		whole, err := irsa.CompilePattern(pattern)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		a.arns = append(a.arns, whole)
	}
	return a, errors.Join(errs...)
}

// approves reports whether a rule accepts a cluster, and returns the rule. Patterns apply only to clusters with a
// claim and identities only to clusters without one, so that neither rule replaces the other.
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
				return "the claimed ARN matches a pattern of automatic approval", true
			}
		}
		return "", false
	}
	creator := record.Spec.RequestedBy.Username
	if creator != "" && slices.Contains(a.identities, creator) {
		return "the creator is an identity of automatic approval", true
	}
	return "", false
}

// autoApprove accepts an undecided cluster if a rule matches.
func (c *Controller) autoApprove(ctx context.Context, cluster *clusterv1.ManagedCluster, record *registerv1alpha1.ManagedClusterRegistration) (time.Duration, error) {
	if cluster.Status.Acceptance != nil || cluster.Annotations[AutoAcceptedAnnotation] != "" {
		return 0, nil
	}
	rule, ok := c.AutoApproval.approves(record)
	if !ok {
		return 0, nil
	}
	driver := driverNamed(c.Drivers, record.Spec.Driver)
	if driver == nil || driver.Refuses(record) != "" {
		return 0, nil
	}
	now := metav1.NewTime(c.Clock.Now()).Rfc3339Copy()
	// The decision is stored in the ManagedCluster, so a cluster is approved at most once.
	_, err := c.Decisions.Apply(ctx, Decision{Cluster: cluster.Name, UID: cluster.UID, Acceptance: clusterv1.Acceptance{
		Accepted: true, DecidedBy: user.APIServerUser, DecidedAt: now, Reason: rule,
	}})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		klog.FromContext(ctx).V(2).Info("Automatic approval was refused", "cluster", cluster.Name, "err", err)
		return refusedPeriod, nil // for example while a previous namespace of this name is deleted
	}
	if err != nil {
		countFailure(record, operationApprove)
		return 0, fmt.Errorf("approving ManagedCluster %q automatically: %w", cluster.Name, err)
	}
	klog.FromContext(ctx).Info("Approved a cluster automatically", "cluster", cluster.Name, "rule", rule)
	return 0, nil
}

// recordApproval copies an automatic approval from the decision to the registration and the annotation.
func (c *Controller) recordApproval(ctx context.Context, cluster *clusterv1.ManagedCluster, record *registerv1alpha1.ManagedClusterRegistration) error {
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
	return c.change(ctx, cluster, c.Clusters.ManagedClusters().Update, func(update *clusterv1.ManagedCluster) bool {
		if update.Annotations[AutoAcceptedAnnotation] != "" {
			return false
		}
		metav1.SetMetaDataAnnotation(&update.ObjectMeta, AutoAcceptedAnnotation, decision.DecidedAt.UTC().Format(time.RFC3339))
		return true
	})
}
