package framework

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
)

// ConfigMapWork returns a ManifestWork for Cluster1. It contains a ConfigMap with the same name, and
// the manifests in more.
func ConfigMapWork(name string, more ...string) *workv1.ManifestWork {
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: Cluster1, Name: name}}
	for _, manifest := range append([]string{fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"default"}}`, name)}, more...) {
		work.Spec.Workload.Manifests = append(work.Spec.Workload.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(manifest)}})
	}
	return work
}

// GetWork returns the ManifestWork of a ClusterPermission in the namespace Cluster1.
func (f *Fleet) GetWork(ctx context.Context, cp *rbacv1alpha1.ClusterPermission) (*workv1.ManifestWork, error) {
	return f.OCM.WorkV1().ManifestWorks(Cluster1).Get(ctx, render.WorkName(cp), metav1.GetOptions{})
}

// WorkOf waits for the ManifestWork of a ClusterPermission, and returns it.
func (f *Fleet) WorkOf(t *testing.T, cp *rbacv1alpha1.ClusterPermission) *workv1.ManifestWork {
	t.Helper()
	var work *workv1.ManifestWork
	Eventually(t, "ClusterPermission "+cp.Name+" has a ManifestWork", func(ctx context.Context) error {
		var err error
		work, err = f.OCM.WorkV1().ManifestWorks(cp.Namespace).Get(ctx, render.WorkName(cp), metav1.GetOptions{})
		return err
	})
	return work
}

// WorksOf returns the ManifestWorks of the ClusterPermission with a name. The ClusterPermission may
// already be deleted.
func WorksOf(ctx context.Context, client versioned.Interface, name string) ([]workv1.ManifestWork, error) {
	list, err := client.WorkV1().ManifestWorks(Cluster1).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(work workv1.ManifestWork) bool {
		return !slices.ContainsFunc(work.OwnerReferences, func(owner metav1.OwnerReference) bool {
			return owner.Kind == "ClusterPermission" && owner.Name == name
		})
	}), nil
}

// NoWorks waits until the ClusterPermission with a name has no ManifestWorks.
func (f *Fleet) NoWorks(t *testing.T, name string) {
	t.Helper()
	Eventually(t, "ClusterPermission "+name+" has no ManifestWork", func(ctx context.Context) error {
		works, err := WorksOf(ctx, f.OCM, name)
		if err == nil && len(works) > 0 {
			return fmt.Errorf("ManifestWork %s exists with finalizers %v, want none", works[0].Name, works[0].Finalizers)
		}
		return err
	})
}

// ReportWork changes the status of the ManifestWork of a ClusterPermission as the agent of its
// cluster.
func (f *Fleet) ReportWork(t *testing.T, cp *rbacv1alpha1.ClusterPermission, change func(*workv1.ManifestWork)) {
	t.Helper()
	_, agent := f.AgentOf(t, cp.Namespace)
	works := agent.WorkV1().ManifestWorks(cp.Namespace)
	Eventually(t, "the agent has reported the status of the ManifestWork of ClusterPermission "+cp.Name, func(ctx context.Context) error {
		work, err := works.Get(ctx, render.WorkName(cp), metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(work)
		_, err = works.UpdateStatus(ctx, work, metav1.UpdateOptions{})
		return err
	})
}

// MarkApplied sets the condition Applied of a ManifestWork to True. The message is note, which makes
// each report different.
func MarkApplied(work *workv1.ManifestWork, note string) {
	meta.SetStatusCondition(&work.Status.Conditions, metav1.Condition{
		Type: workv1.WorkApplied, Status: metav1.ConditionTrue, Reason: workv1.ReasonAppliedManifestWorkComplete,
		Message: note, ObservedGeneration: work.Generation,
	})
}

// ReportWorks reports every ManifestWork of a cluster as applied, as the cluster's agent does.
func ReportWorks(ctx context.Context, client versioned.Interface, cluster string) error {
	works, err := client.WorkV1().ManifestWorks(cluster).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, work := range works.Items {
		if work.Status, err = appliedStatus(&work); err != nil {
			return err
		}
		if _, err := client.WorkV1().ManifestWorks(cluster).UpdateStatus(ctx, &work, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// appliedStatus returns the status that an agent reports after it has applied a ManifestWork that
// contains RBAC objects.
func appliedStatus(work *workv1.ManifestWork) (workv1.ManifestWorkStatus, error) {
	applied := []metav1.Condition{{
		Type: workv1.WorkApplied, Status: metav1.ConditionTrue, Reason: workv1.ReasonAppliedManifestWorkComplete,
		ObservedGeneration: work.Generation, LastTransitionTime: metav1.Now(),
	}}
	status := workv1.ManifestWorkStatus{Conditions: applied}
	for i, manifest := range work.Spec.Workload.Manifests {
		var object metav1.PartialObjectMetadata
		if err := json.Unmarshal(manifest.Raw, &object); err != nil {
			return status, err
		}
		status.ResourceStatus.Manifests = append(status.ResourceStatus.Manifests, workv1.ManifestCondition{
			ResourceMeta: workv1.ManifestResourceMeta{
				Ordinal: int32(i), Group: rbacv1.GroupName, Version: "v1", Kind: object.Kind, Resource: strings.ToLower(object.Kind) + "s",
				Namespace: object.Namespace, Name: object.Name,
			},
			Conditions: applied,
		})
	}
	return status, nil
}

// Manifests returns the manifests of a ManifestWork as JSON values, because storage does not
// preserve the order of keys.
func Manifests(work *workv1.ManifestWork) []any {
	out := make([]any, len(work.Spec.Workload.Manifests))
	for i, manifest := range work.Spec.Workload.Manifests {
		if err := json.Unmarshal(manifest.Raw, &out[i]); err != nil {
			out[i] = err.Error()
		}
	}
	return out
}
