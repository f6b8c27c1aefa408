package migrate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"

	migrationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/migration/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
)

const (
	// automanagedLabel marks an APIService that the hub keeps for CustomResourceDefinitions.
	automanagedLabel = "kube-aggregator.kubernetes.io/automanaged"
	// localGroupPriority and localVersionPriority are the priorities that the hub gives to such an APIService.
	localGroupPriority, localVersionPriority = 1000, 100
)

// forward makes the hub forward the migrated versions to the server. The manifests are those of an installation, and
// the certificate authority that of an APIService that works already.
func (m *migration) forward(ctx context.Context) error {
	objects, err := manifests.Read("apiservice")
	if err != nil {
		return err
	}
	working, err := m.Dynamic.Resource(cli.APIServices).Get(ctx, cli.APIServiceName(migrationv1alpha1.SchemeGroupVersion), metav1.GetOptions{})
	if err != nil {
		return err
	}
	spec, _, err := unstructured.NestedMap(working.Object, "spec")
	if err != nil {
		return err
	}
	// The installation may use cert-manager, or another Secret.
	annotations := working.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	for _, version := range handover.SwitchedVersions() {
		wanted, err := manifests.Find(objects, cli.KindAPIService, cli.APIServiceName(version), nil)
		if err != nil {
			return err
		}
		wanted.SetAnnotations(annotations)
		for _, field := range []string{"service", "caBundle", "insecureSkipTLSVerify"} {
			unstructured.RemoveNestedField(wanted.Object, "spec", field)
			if value, found := spec[field]; found {
				if err := unstructured.SetNestedField(wanted.Object, value, "spec", field); err != nil {
					return err
				}
			}
		}
		if err := m.setAPIService(ctx, wanted); err != nil {
			return err
		}
	}
	for _, version := range handover.SwitchedVersions() {
		if err := cli.WaitForAPIService(ctx, m.Dynamic, cli.APIServiceName(version), cli.Unavailable); err != nil {
			return err
		}
	}
	return nil
}

// setAPIService creates an APIService, or replaces its labels, annotations and spec.
func (m *migration) setAPIService(ctx context.Context, wanted *unstructured.Unstructured) error {
	client := m.Dynamic.Resource(cli.APIServices)
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		current, err := client.Get(ctx, wanted.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = client.Create(ctx, wanted, metav1.CreateOptions{FieldManager: cli.FieldManager})
			return err
		}
		if err != nil {
			return err
		}
		current.SetLabels(wanted.GetLabels())
		current.SetAnnotations(wanted.GetAnnotations())
		current.Object["spec"] = wanted.Object["spec"]
		_, err = client.Update(ctx, current, metav1.UpdateOptions{FieldManager: cli.FieldManager})
		return err
	}); err != nil {
		return fmt.Errorf("APIService %s: %w", wanted.GetName(), err)
	}
	return nil
}

// serveLocally makes the hub serve the migrated versions from CustomResourceDefinitions, as far as it has them, and
// removes the other APIServices.
func (m *migration) serveLocally(ctx context.Context) error {
	local := map[schema.GroupVersion]bool{}
	for _, kind := range m.kinds {
		for _, version := range handover.Versions(kind.CRD) {
			if name, _ := version["name"].(string); name != handover.KeptVersion && version["served"] == true {
				local[schema.GroupVersion{Group: kind.Resource.Group, Version: name}] = true
			}
		}
	}
	for _, version := range handover.SwitchedVersions() {
		if forwarded, err := cli.Aggregated(ctx, m.Dynamic, version); err != nil {
			return err
		} else if !forwarded {
			continue
		}
		name := cli.APIServiceName(version)
		if !local[version] {
			if err := m.Dynamic.Resource(cli.APIServices).Delete(ctx, name, metav1.DeleteOptions{}); cli.IgnoreNotFound(err) != nil {
				return err
			}
			continue
		}
		if err := m.setAPIService(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiregistration.k8s.io/v1", "kind": cli.KindAPIService,
			"metadata": map[string]any{"name": name, "labels": map[string]any{automanagedLabel: "true"}},
			"spec": map[string]any{
				"group": version.Group, "version": version.Version,
				"groupPriorityMinimum": int64(localGroupPriority), "versionPriority": int64(localVersionPriority),
			},
		}}); err != nil {
			return err
		}
	}
	for _, kind := range m.kinds {
		if err := cli.WaitForAPIService(ctx, m.Dynamic, cli.APIServiceName(kind.Version), cli.NotLocal); err != nil {
			return err
		}
	}
	return nil
}
