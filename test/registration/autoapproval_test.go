package registration

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// TestAutomaticApproval starts the server with the feature gate ManagedClusterAutoApproval and its
// flags. The server accepts the clusters that match the flags without a user's decision, and no
// others.
func TestAutomaticApproval(t *testing.T) {
	t.Parallel()
	// The commas in the values separate no values.
	const trusted = "arn:aws:eks:" + faultsRegion + ":[0-9]{11,12}:cluster/trusted-.*"
	h := startAWSHub(t, "--feature-gates=ManagedClusterAutoApproval=true", "--auto-approved-arn-patterns="+trusted,
		"--auto-approved-csr-identities=CN=agents,O=example", "--auto-approved-csr-identities=system:serviceaccount:open-cluster-management:agent-registration-bootstrap")
	clusters := h.OCM.ClusterV1().ManagedClusters()

	// The server processes these clusters before it accepts the later ones.
	by := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "by-somebody-else"}}
	framework.Must(clusters.Create(t.Context(), by, metav1.CreateOptions{}))(t)
	// A cluster with a claim is accepted only by its ARN. The user who creates it does not matter.
	h.request(t, claiming(h.desired("another-arn", "untrusted-trusted-1")))

	h.request(t, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "by-user"}})
	asked := askForCertificate(t, h.bootstrap(t), agentSubject("by-user", "agent"), labelledWith("by-user"))
	framework.Eventually(t, "ManagedCluster by-user is accepted", func(ctx context.Context) error { return h.hubAccepts(ctx, "by-user") })
	agent := framework.OCMClient(t, h.issued(t, asked), nil)
	framework.Eventually(t, "the agent of by-user can read its ManagedCluster", func(ctx context.Context) error {
		_, err := agent.ClusterV1().ManagedClusters().Get(ctx, "by-user", metav1.GetOptions{})
		return err
	})

	desired := h.desired("by-arn", "trusted-1")
	h.request(t, claiming(desired))
	framework.Eventually(t, "ManagedCluster by-arn is accepted", func(ctx context.Context) error { return h.hubAccepts(ctx, "by-arn") })
	if err := h.inAWS(desired); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"by-somebody-else", "another-arn"} {
		if framework.Must(clusters.Get(t.Context(), name, metav1.GetOptions{}))(t).Spec.HubAcceptsClient {
			t.Errorf("hubAcceptsClient of %s = true, want false", name)
		}
	}

	// The server does not accept a denied cluster again.
	h.deny(t, "by-user")
	patch := []byte(`{"metadata":{"labels":{"changed":"yes"}}}`)
	framework.Must(clusters.Patch(t.Context(), "by-user", mergePatch, patch, metav1.PatchOptions{}))(t)
	framework.Eventually(t, "ManagedCluster by-user is denied and cleaned up", func(ctx context.Context) error { return h.isDenied(ctx, "by-user") })
	h.request(t, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "by-user-later"}})
	await.Stays(t, "the denial of ManagedCluster by-user", func(ctx context.Context) error { return h.hubAccepts(ctx, "by-user-later") },
		func(ctx context.Context) error { return h.isDenied(ctx, "by-user") })
}
