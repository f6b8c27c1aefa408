package search

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	accessv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/access/v1alpha1"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// TestAgentThatOnlyReports checks that an agent with one permission reports a cluster of a hub that runs OCM, and leaves
// everything else to the agent of OCM.
func TestAgentThatOnlyReports(t *testing.T) {
	t.Parallel()
	framework.Slots(t, 2)
	hub, server := framework.HubThatRunsOCM(t)
	if err := server.Register(t.Context(), searchv1alpha1.SchemeGroupVersion.String(), accessv1alpha1.SchemeGroupVersion.String()); err != nil {
		t.Fatal(err)
	}
	ocm := framework.OCMClient(t, hub.AdminConfig(), nil)
	before := framework.Must(ocm.ClusterV1().ManagedClusters().Get(t.Context(), framework.Cluster1, metav1.GetOptions{}))(t)
	framework.Apply(t, hub, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
		"metadata": map[string]any{"namespace": framework.Cluster1, "name": "reporter"},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "open-cluster-management:managedcluster:inventory"},
		"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reporter"}},
	}})
	kubeconfig := filepath.Join(t.TempDir(), "reporter.kubeconfig")
	if err := hub.WriteKubeconfig(kubeconfig, "reporter"); err != nil {
		t.Fatal(err)
	}
	managed := framework.OwnCluster(t, localhub.ClusterOptions{Name: framework.Cluster1})
	agent := framework.Must(localhub.NewAgent(localhub.AgentOptions{
		Hub: hub, Managed: managed, Dir: framework.OwnDir(t), Args: []string{"--hub-kubeconfig=" + kubeconfig, "--works=false", "--service-accounts=false"},
	}))(t)
	framework.KillLater(t, agent.Kill)
	if err := agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "a search finds the namespaces of the cluster", func(ctx context.Context) error {
		found, err := search(ctx, ocm, textQuery("kind:Namespace name:kube-system cluster:"+framework.Cluster1))
		if err == nil && found.Count != 1 {
			err = fmt.Errorf("count = %d, want 1", found.Count)
		}
		return err
	})
	framework.Eventually(t, "a review decides about the cluster", func(ctx context.Context) error {
		got, err := ocm.AccessV1alpha1().FleetAccessReviews().Create(ctx, &accessv1alpha1.FleetAccessReview{
			Spec: accessv1alpha1.FleetAccessReviewSpec{User: "nobody", AccessRequest: accessv1alpha1.AccessRequest{
				ResourceAttributes: &accessv1alpha1.ResourceAttributes{Verb: "get", Resource: "secrets"},
			}},
		}, metav1.CreateOptions{})
		if err == nil && got.Status.Denied != 2 {
			err = fmt.Errorf("review = %s, want that both clusters deny", framework.ToJSON(got.Status))
		}
		return err
	})
	after := framework.Must(ocm.ClusterV1().ManagedClusters().Get(t.Context(), framework.Cluster1, metav1.GetOptions{}))(t)
	if after.ResourceVersion != before.ResourceVersion {
		t.Errorf("ManagedCluster = %+v, want it unchanged from %+v", after, before)
	}
	if reported, err := ocm.RbacV1alpha1().ClusterNamespaces(framework.Cluster1).List(t.Context(), metav1.ListOptions{}); err != nil || len(reported.Items) > 0 {
		t.Errorf("ClusterNamespaces = %v, %v, want none", reported.Items, err)
	}
}
