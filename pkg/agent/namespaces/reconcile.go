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
	operation := ""
	switch exists := namespace != nil && namespace.DeletionTimestamp == nil; {
	case exists && report == nil:
		if c.parked.wait(name) {
			return nil
		}
		operation = "create"
		_, err = c.hub.Create(ctx, filled(&v1alpha1.ClusterNamespace{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.clusterName}}, namespace), metav1.CreateOptions{})
	case exists && !matches(report, namespace):
		operation = "update"
		_, err = c.hub.Update(ctx, filled(report.DeepCopy(), namespace), metav1.UpdateOptions{})
	case !exists && report != nil && report.DeletionTimestamp == nil:
		operation = "delete"
		// The UID precondition protects a newer ClusterNamespace with the same name.
		err = c.hub.Delete(ctx, name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(report.UID))})
		if apierrors.IsNotFound(err) {
			return nil
		}
	default:
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s ClusterNamespace: %w", operation, err)
	}
	writes.WithLabelValues(operation).Inc()
	if operation == "delete" {
		// The quota now has room for another report.
		c.release()
	}
	return nil
}

// matches reports whether a report is up to date.
func matches(report *v1alpha1.ClusterNamespace, namespace *metav1.PartialObjectMetadata) bool {
	return report.Spec.NamespaceUID == namespace.UID && maps.Equal(report.Labels, namespace.Labels)
}

// filled sets the reported fields, and keeps the other metadata of a report.
func filled(report *v1alpha1.ClusterNamespace, namespace *metav1.PartialObjectMetadata) *v1alpha1.ClusterNamespace {
	report.Labels = namespace.Labels
	report.Spec.NamespaceUID = namespace.UID
	return report
}
