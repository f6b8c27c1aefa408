package registration

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// TestAutomaticApproval starts the server with the feature gate ManagedClusterAutoApproval and its
// flags: the clusters that these name are accepted with nobody there to decide, and no others.
func TestAutomaticApproval(t *testing.T) {
	t.Parallel()
	const trusted = "arn:aws:eks:" + faultsRegion + ":" + faultsManagedAccount + ":cluster/trusted-.*"
	h := startAWSHub(t, "--feature-gates=ManagedClusterAutoApproval=true", "--auto-approved-arn-patterns="+trusted,
		"--auto-approved-csr-identities=system:serviceaccount:open-cluster-management:agent-registration-bootstrap")
	clusters := h.OCM.ClusterV1().ManagedClusters()

	// These come first, so that the server has had its chance when the others are accepted.
	by := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "by-somebody-else"}}
	framework.Must(clusters.Create(t.Context(), by, metav1.CreateOptions{}))(t)
	// A cluster with a claim is accepted by its ARN alone, and not by the user who creates it.
	h.request(t, claiming(h.desired("another-arn", "untrusted-trusted-1")))

	h.request(t, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "by-user"}})
	asked := askForCertificate(t, h.bootstrap(t), agentSubject("by-user", "agent"), labelledWith("by-user"))
	framework.Eventually(t, "the cluster of the user is accepted", func(ctx context.Context) error { return h.hubAccepts(ctx, "by-user") })
	agent := framework.OCMClient(t, h.issued(t, asked), nil)
	framework.Eventually(t, "its agent reads its ManagedCluster", func(ctx context.Context) error {
		_, err := agent.ClusterV1().ManagedClusters().Get(ctx, "by-user", metav1.GetOptions{})
		return err
	})

	desired := h.desired("by-arn", "trusted-1")
	h.request(t, claiming(desired))
	framework.Eventually(t, "the cluster with the ARN is accepted", func(ctx context.Context) error { return h.hubAccepts(ctx, "by-arn") })
	if err := h.inAWS(desired); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"by-somebody-else", "another-arn"} {
		if framework.Must(clusters.Get(t.Context(), name, metav1.GetOptions{}))(t).Spec.HubAcceptsClient {
			t.Errorf("%s is accepted", name)
		}
	}

	// A denial stays one.
	h.deny(t, "by-user")
	patch := []byte(`{"metadata":{"labels":{"changed":"yes"}}}`)
	framework.Must(clusters.Patch(t.Context(), "by-user", mergePatch, patch, metav1.PatchOptions{}))(t)
	framework.Eventually(t, "the denied cluster has lost its access", func(ctx context.Context) error { return h.isDenied(ctx, "by-user") })
	if framework.Must(clusters.Get(t.Context(), "by-user", metav1.GetOptions{}))(t).Spec.HubAcceptsClient {
		t.Error("the denied cluster is accepted again")
	}
}
