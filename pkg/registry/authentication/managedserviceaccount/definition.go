// Package managedserviceaccount serves ManagedServiceAccounts.
package managedserviceaccount

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication"
	authenticationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1alpha1"
	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/validation"
	proxyv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/quota"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// Definition returns the row of ManagedServiceAccounts.
func Definition(placement Placement, validator validation.Validator) definition.Resource {
	return definition.Resource{
		Name: "managedserviceaccounts", Singular: "managedserviceaccount", Kind: "ManagedServiceAccount",
		ShortNames: []string{"msa"}, Categories: []string{"ocm"},
		Versions: []schema.GroupVersion{
			authenticationv1beta1.SchemeGroupVersion,
			authenticationv1alpha1.SchemeGroupVersion,
			proxyv1alpha1.SchemeGroupVersion,
		},
		Strategy: &definition.Strategy[*authentication.ManagedServiceAccount]{
			PrepareForCreate: func(_ context.Context, a *authentication.ManagedServiceAccount) {
				defaultValidity(a, validator.MaximumValidity)
				a.Status.Conditions = pendingConditions()
			},
			PrepareForUpdate: func(_ context.Context, a, old *authentication.ManagedServiceAccount) {
				if a.Spec.Rotation.Validity != old.Spec.Rotation.Validity {
					defaultValidity(a, validator.MaximumValidity)
				}
			},
			Warnings: func(a *authentication.ManagedServiceAccount) []string {
				if enabled := a.Spec.Rotation.Enabled; enabled == nil || *enabled {
					return nil
				}
				return []string{"spec.rotation.enabled: false has no effect; the agent rotates the token before it expires"}
			},
			Rules: validator.Rules(),
		},
		Quota:  quota.Limits{Objects: 2_000, Bytes: 8 << 20},
		Limits: quota.ObjectLimits{SpecBytes: 64 << 10},
		Columns: definition.Columns[*authentication.ManagedServiceAccount]{
			{Name: "Ready", Description: "Whether a valid token is reported. In a namespace that is bound to cluster sets: the number of ready clusters and of all clusters.", Value: ready},
			{Name: "Expires", Description: "Time until the first token expires.", Value: func(a *authentication.ManagedServiceAccount) any {
				return until(a.Status.ExpirationTimestamp)
			}},
			{Name: "Last Rotated", Description: "Time since the last rotation of the token.", Value: func(a *authentication.ManagedServiceAccount) any {
				if a.Status.TokenSecretRef == nil {
					return "<none>"
				}
				return duration.HumanDuration(time.Since(a.Status.TokenSecretRef.LastRefreshTimestamp.Time))
			}},
			{Name: "Service Account", Description: "Namespace and name of the ServiceAccount on the managed cluster.", Wide: true, Value: func(a *authentication.ManagedServiceAccount) any {
				if a.Status.ServiceAccountRef == nil {
					return "<none>"
				}
				return a.Status.ServiceAccountRef.Namespace + "/" + a.Status.ServiceAccountRef.Name
			}},
		},
		Wrap: placementGuard(placement).Wrap,
	}
}

// pendingConditions returns the conditions of a new account. They stay if no agent manages the
// account. Upstream OCM agents report the same two conditions.
func pendingConditions() []metav1.Condition {
	var out []metav1.Condition
	for _, conditionType := range []string{
		authenticationv1beta1.ConditionSecretCreated,
		authenticationv1beta1.ConditionTokenReported,
	} {
		meta.SetStatusCondition(&out, metav1.Condition{
			Type: conditionType, Status: metav1.ConditionFalse, Reason: authenticationv1beta1.ReasonPending,
			Message: "The agent of the managed cluster has not reported yet.", ObservedGeneration: 1,
		})
	}
	return out
}

// defaultValidity sets the default validity, or the maximum if it is lower. Upstream clients send
// "0s" for no validity, and upstream agents would request tokens with it, which fails.
func defaultValidity(a *authentication.ManagedServiceAccount, maximum time.Duration) {
	validity, err := authenticationv1beta1.ParseValidity(a.Spec.Rotation.Validity)
	if err != nil || validity != authenticationv1beta1.DefaultValidity {
		return
	}
	if maximum > 0 {
		validity = min(validity, maximum)
	}
	a.Spec.Rotation.Validity = validity.String()
}

func ready(a *authentication.ManagedServiceAccount) any {
	if meta.IsStatusConditionFalse(a.Status.Conditions, authenticationv1beta1.ConditionNamespaceManaged) {
		return string(metav1.ConditionFalse)
	}
	if clusters := a.Status.Clusters; clusters != nil {
		return fmt.Sprintf("%d/%d", clusters.Ready, clusters.Total)
	}
	if reported := meta.FindStatusCondition(a.Status.Conditions, authenticationv1beta1.ConditionTokenReported); reported != nil {
		return string(reported.Status)
	}
	return string(metav1.ConditionUnknown)
}

func until(at *metav1.Time) string {
	if at == nil {
		return "<none>"
	}
	left := time.Until(at.Time)
	if left <= 0 {
		return "expired"
	}
	return duration.HumanDuration(left)
}
