package agent_test

import (
	"context"
	"fmt"
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

// testClusterClaims checks that the agent reports ClusterClaims, except those with the label for claims that stay in
// the cluster.
func testClusterClaims(t *testing.T, j *joiner) {
	const spokeOnly = "open-cluster-management.io/spoke-only"
	resource := schema.GroupVersionResource{Group: clusterv1.GroupName, Version: "v1alpha1", Resource: "clusterclaims"}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{
			"name":        resource.GroupResource().String(),
			"annotations": map[string]any{"api-approved.kubernetes.io": "unapproved, for a test"},
		},
		"spec": map[string]any{
			"group": resource.Group, "scope": "Cluster",
			"names": map[string]any{"kind": "ClusterClaim", "plural": resource.Resource},
			"versions": []any{map[string]any{"name": resource.Version, "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			}}},
		},
	}}
	objects := []*unstructured.Unstructured{definition}
	for name, labels := range map[string]map[string]string{
		"zone.example.com":   {"example.com/spoke-only": ""},
		"hidden.example.com": {spokeOnly: ""},
		"secret.example.com": {spokeOnly: "false"},
		"id.k8s.io":          {spokeOnly: "true"},
	} {
		claim := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"value": "from a ClusterClaim"}}}
		claim.SetGroupVersionKind(resource.GroupVersion().WithKind("ClusterClaim"))
		claim.SetName(name)
		claim.SetLabels(labels)
		objects = append(objects, claim)
	}
	if err := j.control.Apply(t.Context(), objects...); err != nil {
		t.Fatal(err)
	}
	j.join()
	eventually(t, "ClusterClaims are reported", func(ctx context.Context) error {
		system, err := j.kube.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if err != nil {
			return err
		}
		got := map[string]string{}
		for _, claim := range j.hub.cluster(j.name).Status.ClusterClaims {
			got[claim.Name] = claim.Value
		}
		for _, ofAgent := range []string{"kubeversion.open-cluster-management.io", clusterv1.AgentVersionClaim, "rehoming.open-cluster-management.io/key"} {
			delete(got, ofAgent)
		}
		if want := map[string]string{"zone.example.com": "from a ClusterClaim", "id.k8s.io": string(system.UID)}; !maps.Equal(got, want) {
			return fmt.Errorf("claims = %v, want %v", got, want)
		}
		return nil
	})
}
