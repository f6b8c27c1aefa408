package clusteradm

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
)

const (
	// automanagedLabel marks an APIService that the hub keeps for CustomResourceDefinitions.
	automanagedLabel = "kube-aggregator.kubernetes.io/automanaged"
	// localPriorities are the priorities that the hub gives to such an APIService.
	localGroupPriority, localVersionPriority = 1000, 100
	// reasonLocal is the reason of the condition Available of an APIService whose versions the hub serves itself.
	reasonLocal = "Local"
)

// forward makes the hub forward the migrated versions to the server. The manifests are those of an installation, and
// the certificate authority that of an APIService that works already.
func (m *migration) forward(ctx context.Context, manifests map[string]*unstructured.Unstructured) error {
	working, err := m.client.Resource(apiServices).Get(ctx, apiServiceName(migrationv1alpha1.SchemeGroupVersion), metav1.GetOptions{})
	if err != nil {
		return err
	}
	spec, _, err := unstructured.NestedMap(working.Object, "spec")
	if err != nil {
		return err
	}
	for _, version := range switchedVersions() {
		wanted := manifests[apiServiceName(version)]
		if wanted == nil {
			return fmt.Errorf("no manifest of APIService %s", apiServiceName(version))
		}
		wanted = wanted.DeepCopy()
		// The installation may use cert-manager, or another Secret.
		annotations := working.GetAnnotations()
		delete(annotations, corev1.LastAppliedConfigAnnotation)
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
	return m.waitAvailable(ctx)
}

// setAPIService creates an APIService, or replaces its labels, annotations and spec.
func (m *migration) setAPIService(ctx context.Context, wanted *unstructured.Unstructured) error {
	client := m.client.Resource(apiServices)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		current, err := client.Get(ctx, wanted.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = client.Create(ctx, wanted, metav1.CreateOptions{FieldManager: fieldManager})
			return err
		}
		if err != nil {
			return err
		}
		current.SetLabels(wanted.GetLabels())
		current.SetAnnotations(wanted.GetAnnotations())
		current.Object["spec"] = wanted.Object["spec"]
		_, err = client.Update(ctx, current, metav1.UpdateOptions{FieldManager: fieldManager})
		return err
	})
	if err != nil {
		return fmt.Errorf("APIService %s: %w", wanted.GetName(), err)
	}
	return nil
}

func (m *migration) waitAvailable(ctx context.Context) error {
	for _, version := range switchedVersions() {
		name := apiServiceName(version)
		if err := poll(ctx, func(ctx context.Context) (string, error) {
			current, err := m.client.Resource(apiServices).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			return unavailable(current), nil
		}); err != nil {
			return fmt.Errorf("APIService %s: %w", name, err)
		}
	}
	return nil
}

// serveLocally makes the hub serve the migrated versions from CustomResourceDefinitions, as far as it has them, and
// removes the other APIServices.
func (m *migration) serveLocally(ctx context.Context) error {
	local := map[schema.GroupVersion]bool{}
	for _, kind := range m.kinds {
		for _, version := range crdVersions(kind.crd) {
			if name, _ := version["name"].(string); name != keptVersion && version["served"] == true {
				local[schema.GroupVersion{Group: kind.resource.Group, Version: name}] = true
			}
		}
	}
	for _, version := range switchedVersions() {
		forwarded, err := m.forwarded(ctx, version)
		if err != nil {
			return err
		}
		if !forwarded {
			continue
		}
		name := apiServiceName(version)
		if !local[version] {
			if err := m.client.Resource(apiServices).Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			continue
		}
		wanted := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiregistration.k8s.io/v1", "kind": kindAPIService,
			"metadata": map[string]any{"name": name, "labels": map[string]any{automanagedLabel: "true"}},
			"spec": map[string]any{
				"group": version.Group, "version": version.Version,
				"groupPriorityMinimum": int64(localGroupPriority), "versionPriority": int64(localVersionPriority),
			},
		}}
		if err := m.setAPIService(ctx, wanted); err != nil {
			return err
		}
	}
	return m.waitLocal(ctx)
}

func (m *migration) forwarded(ctx context.Context, version schema.GroupVersion) (bool, error) {
	return m.install.aggregates(ctx, version)
}

// waitLocal waits until the hub serves each kind from its CustomResourceDefinition.
func (m *migration) waitLocal(ctx context.Context) error {
	for _, kind := range m.kinds {
		name := apiServiceName(kind.version)
		if err := poll(ctx, func(ctx context.Context) (string, error) {
			current, err := m.client.Resource(apiServices).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			conditions, _, _ := unstructured.NestedSlice(current.Object, "status", "conditions")
			for _, item := range conditions {
				if condition, ok := item.(map[string]any); ok && condition["type"] == "Available" && condition["reason"] == reasonLocal {
					return "", nil
				}
			}
			return "it is not local yet", nil
		}); err != nil {
			return fmt.Errorf("APIService %s: %w", name, err)
		}
	}
	return nil
}
