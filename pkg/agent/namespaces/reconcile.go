package namespaces

import (
	"context"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

// reconcile makes the report of a namespace what it should be. It makes at most
// one request; what the watches show afterwards brings the next pass.
func (c *Controller) reconcile(ctx context.Context, name string) error {
	namespace, err := c.namespaces.Get(name)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("namespace as it was seen: %w", err)
	}
	report, err := c.reports.Get(name)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("ClusterNamespace as it was seen: %w", err)
	}
	switch exists := namespace != nil && namespace.DeletionTimestamp == nil; {
	case exists && report == nil:
		if c.parked.wait(name) {
			return nil
		}
		return c.create(ctx, namespace)
	case exists && !says(report, namespace):
		return c.update(ctx, report, namespace)
	case !exists && report != nil && report.DeletionTimestamp == nil:
		return c.delete(ctx, report)
	}
	return nil
}

// says reports whether a report is what it should be.
func says(report *v1alpha1.ClusterNamespace, namespace *metav1.PartialObjectMetadata) bool {
	return report.Spec.NamespaceUID == namespace.UID && maps.Equal(report.Labels, namespace.Labels)
}

// say makes a report what it should be.
func say(report *v1alpha1.ClusterNamespace, namespace *metav1.PartialObjectMetadata) {
	report.Labels = namespace.Labels
	report.Spec.NamespaceUID = namespace.UID
}

func (c *Controller) create(ctx context.Context, namespace *metav1.PartialObjectMetadata) error {
	report := &v1alpha1.ClusterNamespace{ObjectMeta: metav1.ObjectMeta{Name: namespace.Name, Namespace: c.clusterName}}
	say(report, namespace)
	if _, err := c.hub.Create(ctx, report, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create ClusterNamespace: %w", err)
	}
	writes.WithLabelValues("create").Inc()
	return nil
}

// update keeps what others have put on a report beside its labels.
func (c *Controller) update(ctx context.Context, seen *v1alpha1.ClusterNamespace, namespace *metav1.PartialObjectMetadata) error {
	report := seen.DeepCopy()
	say(report, namespace)
	if _, err := c.hub.Update(ctx, report, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update ClusterNamespace: %w", err)
	}
	writes.WithLabelValues("update").Inc()
	return nil
}

func (c *Controller) delete(ctx context.Context, report *v1alpha1.ClusterNamespace) error {
	// One of the name that was made since is looked at first.
	err := c.hub.Delete(ctx, report.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(report.UID))})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete ClusterNamespace: %w", err)
	}
	writes.WithLabelValues("delete").Inc()
	// There is room for another one.
	c.release()
	return nil
}
