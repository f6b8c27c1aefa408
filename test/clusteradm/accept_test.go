package clusteradm_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const bootstrapUser = "system:serviceaccount:open-cluster-management:agent-registration-bootstrap"

// asks creates the CertificateSigningRequest of an agent as a user, with a subject, and returns its
// name.
func asks(t *testing.T, hub *localhub.Cluster, user, cluster, commonName string, organizations ...string) string {
	t.Helper()
	config, err := hub.UserConfig(user, "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	content, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: commonName, Organization: organizations}}, key)
	if err != nil {
		t.Fatal(err)
	}
	request, err := client.CertificatesV1().CertificateSigningRequests().Create(t.Context(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: cluster + "-", Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: content}),
			SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Name
}

func agentAsks(t *testing.T, hub *localhub.Cluster, user, cluster string) string {
	t.Helper()
	return asks(t, hub, user, cluster, "system:open-cluster-management:"+cluster+":agent1", "system:open-cluster-management:"+cluster)
}

func isApproved(t *testing.T, hub *localhub.Cluster, name string) bool {
	t.Helper()
	request, err := kubeOf(t, hub).CertificatesV1().CertificateSigningRequests().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(request.Status.Conditions, func(condition certificatesv1.CertificateSigningRequestCondition) bool {
		return condition.Type == certificatesv1.CertificateApproved
	})
}

func createCluster(t *testing.T, hub *localhub.Cluster, name string, annotations map[string]string) {
	t.Helper()
	if _, err := ocmOf(t, hub).ClusterV1().ManagedClusters().Create(t.Context(), &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func isAccepted(t *testing.T, hub *localhub.Cluster, name string) bool {
	t.Helper()
	cluster, err := ocmOf(t, hub).ClusterV1().ManagedClusters().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return cluster.Spec.HubAcceptsClient
}

func TestAcceptOnAPublicHub(t *testing.T) {
	hub, _, _, _ := publicHub(t)
	for _, cluster := range []string{"accept1", "accept2"} {
		createCluster(t, hub, cluster, nil)
	}
	first := agentAsks(t, hub, bootstrapUser, "accept1")
	stranger := agentAsks(t, hub, "mallory", "accept2")
	// A cluster that fails does not block the others.
	got := run(t, hub, "accept", "--clusters=nobody,accept2,accept1")
	got.refused(t, "nobody: the ManagedCluster does not exist", "accept2: ", "mallory", "--requesters")
	got.shows(t, "accept1: accepted", "accept1: approved "+first)
	if !isAccepted(t, hub, "accept1") || !isApproved(t, hub, first) {
		t.Error("accept1 is not accepted or its request is not approved, want both")
	}
	if isApproved(t, hub, stranger) {
		t.Error("request of mallory is approved, want it pending")
	}
	run(t, hub, "accept", "--clusters=accept2", "--requesters=mallory").done(t)
	if !isApproved(t, hub, stranger) {
		t.Error("request of a user in --requesters is pending, want it approved")
	}
	run(t, hub, "accept", "--clusters=accept1", "--deny", "--reason=why").done(t).shows(t, "accept1: denied", "does not store --reason")
	if isAccepted(t, hub, "accept1") {
		t.Error("accept1 is accepted after --deny, want it denied")
	}
}

// A requester chooses the label of a request freely. The label must not give the requester the
// certificate of another cluster, or more permissions.
func TestAcceptApprovesAgentsOnly(t *testing.T) {
	hub, _, _, _ := publicHub(t)
	createCluster(t, hub, "victim", nil)
	identity := "system:open-cluster-management:victim"
	for name, subject := range map[string][]string{
		"another cluster":      {"system:open-cluster-management:other:agent", "system:open-cluster-management:other"},
		"additional name part": {identity + ":agent:other", identity},
		"empty agent name":     {identity + ":", identity},
		"another group":        {identity + ":agent", "system:open-cluster-management:other"},
		"another common name":  {"admin", identity},
	} {
		t.Run(name, func(t *testing.T) {
			request := asks(t, hub, bootstrapUser, "victim", subject[0], subject[1:]...)
			run(t, hub, "accept", "--clusters=victim", "--skip-approve-check").refused(t, request)
			if isApproved(t, hub, request) {
				t.Error("the request is approved, want it pending")
			}
			if err := kubeOf(t, hub).CertificatesV1().CertificateSigningRequests().Delete(t.Context(), request, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestAcceptRequiresNoCertificateForIAMRoles(t *testing.T) {
	hub, _, _, _ := publicHub(t)
	createCluster(t, hub, "accept-eks", map[string]string{"agent.open-cluster-management.io/managed-cluster-arn": managedARN})
	got := run(t, hub, "accept", "--clusters=accept-eks").done(t)
	if strings.Contains(got.out, "certificate") || !isAccepted(t, hub, "accept-eks") {
		t.Errorf("accept printed %s, want an accepted cluster and no certificate", got.out)
	}
}

// The cluster, the request of its agent and the condition of the hub are created after the command
// starts.
func TestAcceptWaits(t *testing.T) {
	hub, _, _, _ := publicHub(t)
	ocm := ocmOf(t, hub)
	finished := started(t, hub, "accept", "--clusters=late", "--wait", "--timeout=1m")
	createCluster(t, hub, "late", nil)
	await.Eventually(t, "ManagedCluster late is accepted", func(ctx context.Context) error {
		cluster, err := ocm.ClusterV1().ManagedClusters().Get(ctx, "late", metav1.GetOptions{})
		if err == nil && !cluster.Spec.HubAcceptsClient {
			err = errors.New("spec.hubAcceptsClient = false, want true")
		}
		return err
	})
	request := agentAsks(t, hub, bootstrapUser, "late")
	await.Eventually(t, "ManagedCluster late has the condition HubAcceptedManagedCluster", func(ctx context.Context) error {
		cluster, err := ocm.ClusterV1().ManagedClusters().Get(ctx, "late", metav1.GetOptions{})
		if err != nil {
			return err
		}
		meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{Type: clusterv1.ManagedClusterConditionHubAccepted, Status: metav1.ConditionTrue, Reason: clusterv1.ReasonHubClusterAdminAccepted})
		_, err = ocm.ClusterV1().ManagedClusters().UpdateStatus(ctx, cluster, metav1.UpdateOptions{})
		return err
	})
	select {
	case got := <-finished:
		got.done(t).shows(t, "late: approved "+request, "late: the cluster has access to the hub")
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}

func TestAcceptTimeoutNamesTheReason(t *testing.T) {
	hub, _, _, _ := publicHub(t)
	run(t, hub, "accept", "--clusters=never", "--wait", "--timeout=1s").refused(t, "never: timed out: the cluster has not requested to join")
}
