package roleassignment

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	rbacv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

var decisions = schema.GroupVersionResource{Group: clusterGroup, Version: "v1beta1", Resource: "placementdecisions"}

// decisionCRD is a CustomResourceDefinition of PlacementDecisions with the fields that the server reads.
func decisionCRD() *unstructured.Unstructured {
	object := func(properties map[string]any) map[string]any {
		return map[string]any{"type": "object", "properties": properties}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "placementdecisions." + clusterGroup, "annotations": map[string]any{
			// The API server requires it for groups of the Kubernetes community.
			"api-approved.kubernetes.io": "unapproved, test",
		}},
		"spec": map[string]any{
			"group": clusterGroup, "scope": "Namespaced",
			"names": map[string]any{"kind": "PlacementDecision", "listKind": "PlacementDecisionList", "plural": "placementdecisions", "singular": "placementdecision"},
			"versions": []any{map[string]any{
				"name": "v1beta1", "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}},
				"schema": map[string]any{"openAPIV3Schema": object(map[string]any{"status": object(map[string]any{
					"decisions": map[string]any{"type": "array", "items": object(map[string]any{
						"clusterName": map[string]any{"type": "string"}, "reason": map[string]any{"type": "string"},
					})},
				})})},
			}},
		},
	}}
}

// TestPlacement checks that the server follows PlacementDecisions when the hub begins to serve them, and that grants
// stay while the decisions are not known.
func TestPlacement(t *testing.T) {
	t.Parallel()
	f := &fleet{framework.OwnFleet(t, localhub.FleetOptions{})}
	first, second := f.SilentCluster(t), f.SilentCluster(t)
	a := forSet("placed", "ann", "", "view")
	a.Spec.RoleAssignments[0].ClusterSelection = rbacv1beta1.ClusterSelection{
		Type: rbacv1beta1.SelectPlacements, Placements: []rbacv1beta1.PlacementRef{{Namespace: "kube-public", Name: "some"}},
	}
	out, err := f.Kubectl(t, "apiVersion: rbac.open-cluster-management.io/v1beta1\nkind: MulticlusterRoleAssignment\nmetadata: {name: "+a.Name+`}
spec:
  subject: {kind: User, name: ann}
  roleAssignments: [{name: view, clusterRole: view, clusterSelection: {type: placements, placements: [{name: some, namespace: kube-public}]}}]`, "apply", "-n", home, "-f", "-")
	if err != nil || !strings.Contains(out, "Warning: spec.roleAssignments[0].clusterSelection: the clusters are not known") {
		t.Fatalf("kubectl apply on a hub without PlacementDecisions = %s, %v, want a warning", out, err)
	}
	f.deleteLater(t, a)
	status := func(want string) {
		t.Helper()
		f.says(t, a, "the role assignment has the reason "+want, func(s *rbacv1beta1.MulticlusterRoleAssignmentStatus) bool {
			return len(s.RoleAssignments) == 1 && s.RoleAssignments[0].Reason == want
		})
	}
	status(rbacv1beta1.ReasonProcessing)

	framework.Apply(t, f.Hub, decisionCRD())
	status(rbacv1beta1.ReasonInvalidReference)
	client := framework.Must(dynamic.NewForConfig(f.Hub.AdminConfig()))(t).Resource(decisions).Namespace("kube-public")
	decide := func(name string, clusters ...string) {
		t.Helper()
		current, err := client.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			current = framework.Must(client.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": clusterGroup + "/v1beta1", "kind": "PlacementDecision",
				"metadata": map[string]any{"name": name, "labels": map[string]any{clusterGroup + "/placement": "some"}},
			}}, metav1.CreateOptions{}))(t)
		}
		list := []any{}
		for _, cluster := range clusters {
			list = append(list, map[string]any{"clusterName": cluster, "reason": ""})
		}
		if err := unstructured.SetNestedSlice(current.Object, list, "status", "decisions"); err != nil {
			t.Fatal(err)
		}
		framework.Must(client.UpdateStatus(t.Context(), current, metav1.UpdateOptions{}))(t)
	}
	decide("some-1", first)
	f.granted(t, a, first)
	decide("some-2", second, "cluster-that-does-not-exist")
	f.granted(t, a, first, second)
	decide("some-1")
	before := f.granted(t, a, second)

	// The server does not know the decisions at its start.
	if err := f.Server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := f.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	decide("some-1", first)
	after := f.granted(t, a, first, second)
	if got, want := after[second].UID, before[second].UID; got != want {
		t.Errorf("UID of the ClusterPermission of %s after a restart = %s, want %s: it was deleted", second, got, want)
	}
	if err := client.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	f.granted(t, a)
}

// TestKilled kills the server at different times while it writes and deletes ClusterPermissions.
func TestKilled(t *testing.T) {
	t.Parallel()
	f := &fleet{framework.OwnFleet(t, localhub.FleetOptions{})}
	f.makeSet(t, "north")
	var clusters []string
	for range 12 {
		clusters = append(clusters, f.silentIn(t, "north"))
	}
	restart := func() {
		t.Helper()
		if err := f.Server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := f.Server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// written waits until at least so many clusters have a ClusterPermission, or at most so many.
	written := func(a *rbacv1beta1.MulticlusterRoleAssignment, enough func(int) bool) {
		t.Helper()
		framework.Eventually(t, "some ClusterPermissions are written or deleted", func(ctx context.Context) error {
			permissions, err := f.permissions(ctx, a)
			if err == nil && !enough(len(permissions)) {
				err = fmt.Errorf("ClusterPermissions = %d", len(permissions))
			}
			return err
		})
	}
	for i, part := range []int{0, 1, len(clusters) / 2} {
		a := f.create(t, forSet(fmt.Sprintf("killed-%d", i), "ann", "north", "view"))
		written(a, func(n int) bool { return n >= part })
		restart()
		f.granted(t, a, slices.Clone(clusters)...)
		if err := f.OCM.RbacV1beta1().MulticlusterRoleAssignments(home).Delete(t.Context(), a.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		written(a, func(n int) bool { return n <= len(clusters)-part })
		restart()
		f.granted(t, a)
	}
}
