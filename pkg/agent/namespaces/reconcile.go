package namespaces

import (
	"context"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

// reconcile creates, updates or deletes the report of a namespace. It makes at most one request.
// The watch event of the result triggers the next pass.
func (c *Controller) reconcile(ctx context.Context, name string) error {
	namespace, err := c.namespaces.Get(name)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("get namespace from cache: %w", err)
	}
	report, err := c.reports.Get(name)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("get ClusterNamespace from cache: %w", err)
	}
	switch exists := namespace != nil && namespace.DeletionTimestamp == nil; {
	case exists && report == nil:
		if c.parked.wait(name) {
			return nil
		}
		return c.create(ctx, namespace)
	case exists && !matches(report, namespace):
		return c.update(ctx, report, namespace)
	case !exists && report != nil && report.DeletionTimestamp == nil:
		return c.delete(ctx, report)
	}
	return nil
}

// matches reports whether a report is up to date.
func matches(report *v1alpha1.ClusterNamespace, namespace *metav1.PartialObjectMetadata) bool {
	return report.Spec.NamespaceUID == namespace.UID && maps.Equal(report.Labels, namespace.Labels)
}

// fill sets the reported fields.
func fill(report *v1alpha1.ClusterNamespace, namespace *metav1.PartialObjectMetadata) {
	report.Labels = namespace.Labels
	report.Spec.NamespaceUID = namespace.UID
}

func (c *Controller) create(ctx context.Context, namespace *metav1.PartialObjectMetadata) error {
	report := &v1alpha1.ClusterNamespace{ObjectMeta: metav1.ObjectMeta{Name: namespace.Name, Namespace: c.clusterName}}
	fill(report, namespace)
	if _, err := c.hub.Create(ctx, report, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create ClusterNamespace: %w", err)
	}
	writes.WithLabelValues("create").Inc()
	return nil
}

// update keeps the metadata of a report except its labels.
func (c *Controller) update(ctx context.Context, seen *v1alpha1.ClusterNamespace, namespace *metav1.PartialObjectMetadata) error {
	report := seen.DeepCopy()
	fill(report, namespace)
	if _, err := c.hub.Update(ctx, report, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update ClusterNamespace: %w", err)
	}
	writes.WithLabelValues("update").Inc()
	return nil
}

func (c *Controller) delete(ctx context.Context, report *v1alpha1.ClusterNamespace) error {
	// The UID precondition protects a newer ClusterNamespace with the same name.
	err := c.hub.Delete(ctx, report.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(report.UID))})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete ClusterNamespace: %w", err)
	}
	writes.WithLabelValues("delete").Inc()
	// The quota now has room for another report.
	c.release()
	return nil
}
