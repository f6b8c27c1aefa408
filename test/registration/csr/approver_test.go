package csr_test

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/registration/csr"
	"open-cluster-management.io/hub-apiserver/test/await"
)

// TestApprover checks that agents get only the certificates that they are allowed to have. A real
// hub signs the certificates and then authenticates the agents with them.
func TestApprover(t *testing.T) {
	h := startHub(t, "autopilot")
	bootstrap, err := h.UserConfig("system:bootstrap:abcdef", csr.BootstrapGroup)
	if err != nil {
		t.Fatal(err)
	}
	account, err := h.ServiceAccountConfig(t.Context(), "open-cluster-management", "cluster-bootstrap")
	if err != nil {
		t.Fatal(err)
	}
	longAgo := time.Now().Add(-time.Hour)

	t.Run("lifecycle of an agent", func(t *testing.T) {
		first := h.ask(t, bootstrap, "cluster1", "agent1")
		h.stillPending(t, "cluster1", first)
		h.register(t, "cluster1", "system:bootstrap:abcdef")
		h.stillPending(t, "cluster1", first)

		h.decide(t, "cluster1", true, time.Now())
		agent := h.issued(t, first, "the cluster was accepted by")
		expectUser(t, agent, identityPrefix+"cluster1:agent1", identityPrefix+"cluster1", allGroup)
		await.Eventually(t, "the registration contains the agent", func() error {
			if agents := h.agents(t, "cluster1"); !slices.Equal(agents, []string{"agent1"}) {
				return fmt.Errorf("agents = %q, want agent1", agents)
			}
			return nil
		})

		// Another agent with the bootstrap token comes later.
		h.decide(t, "cluster1", true, longAgo)
		second := h.ask(t, bootstrap, "cluster1", "agent2")
		h.stillPending(t, "cluster1", second)
		h.decide(t, "cluster1", true, time.Now())
		h.issued(t, second, "the cluster was accepted by")
		h.decide(t, "cluster1", true, longAgo)

		// The hub lets an agent renew only the certificates that its role allows.
		renewal := h.ask(t, agent, "cluster1", "agent1")
		h.stillPending(t, "cluster1", renewal)
		h.grant(t, "cluster1", []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: identityPrefix + "cluster1"}}, rbacv1.PolicyRule{
			APIGroups: []string{registerv1alpha1.GroupName}, Resources: []string{"managedclusters/clientcertificates"}, ResourceNames: []string{"cluster1"}, Verbs: []string{"renew"},
		})
		await.Eventually(t, "the approver approves the renewal", func() error {
			_, err := h.approver.ApprovePending(t.Context(), "cluster1")
			if isPending(h.request(t, renewal)) {
				return errors.Join(errors.New("the renewal is pending"), err)
			}
			return err
		})
		renewed := h.issued(t, renewal, "renews its own certificate")
		expectUser(t, renewed, identityPrefix+"cluster1:agent1", identityPrefix+"cluster1", allGroup)
		h.issued(t, h.ask(t, renewed, "cluster1", "agent1"), "renews its own certificate")
		if agents := h.agents(t, "cluster1"); !slices.Equal(agents, []string{"agent1", "agent2"}) {
			t.Errorf("agents(cluster1) = %q, want agent1 and agent2", agents)
		}

		// An agent can request a certificate for its own cluster only.
		h.register(t, "cluster2", "system:bootstrap:abcdef")
		h.decide(t, "cluster2", true, time.Now().Add(time.Hour))
		h.stillPending(t, "cluster2", h.ask(t, renewed, "cluster2", "agent1"))
		h.stillPending(t, "cluster1", h.ask(t, renewed, "cluster1", "agent3"))

		// A denied cluster and a deleted cluster get no more certificates.
		h.decide(t, "cluster1", false, time.Now())
		h.expectDenied(t, h.ask(t, renewed, "cluster1", "agent1"), reasonDenied)
		h.expectDenied(t, h.ask(t, bootstrap, "cluster1", "agent4"), reasonDenied)
		if err := h.server.ClusterV1().ManagedClusters().Delete(t.Context(), "cluster1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		h.expectDenied(t, h.ask(t, renewed, "cluster1", "agent1"), reasonDeleted)
	})

	t.Run("requests of a denied cluster", func(t *testing.T) {
		h.register(t, "denied", "system:serviceaccount:open-cluster-management:cluster-bootstrap")
		own, other := h.ask(t, account, "denied", "agent1"), h.ask(t, bootstrap, "denied", "agent1")
		h.stillPending(t, "denied", own)
		h.decide(t, "denied", false, time.Now())
		h.expectDenied(t, own, reasonDenied)
		h.stillPending(t, "denied", other)
		h.decide(t, "denied", true, time.Now())
		h.issued(t, other, "the cluster was accepted by")
	})

	t.Run("first agent after the decision", func(t *testing.T) {
		h.register(t, "late", "system:bootstrap:abcdef")
		h.decide(t, "late", true, longAgo)
		h.stillPending(t, "late", h.ask(t, account, "late", "agent0"))
		h.issued(t, h.ask(t, bootstrap, "late", "agent1"), "none of its agents has a certificate")
		await.Eventually(t, "the registration contains the agent", func() error {
			if agents := h.agents(t, "late"); !slices.Equal(agents, []string{"agent1"}) {
				return fmt.Errorf("agents = %q, want agent1", agents)
			}
			return nil
		})
		h.stillPending(t, "late", h.ask(t, bootstrap, "late", "agent1"))
	})

	t.Run("approved by hand", func(t *testing.T) {
		h.register(t, "hand", "alice")
		h.decide(t, "hand", true, longAgo)
		a := h.ask(t, account, "hand", "agent1")
		h.stillPending(t, "hand", a)
		request := h.request(t, a)
		request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: "True", Reason: "KubectlApprove", Message: byHand,
		})
		if _, err := h.admin.CertificatesV1().CertificateSigningRequests().UpdateApproval(t.Context(), request.Name, request, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		h.issued(t, a, byHand)
		await.Eventually(t, "the registration contains the agent", func() error {
			if agents := h.agents(t, "hand"); !slices.Equal(agents, []string{"agent1"}) {
				return fmt.Errorf("agents = %q, want agent1", agents)
			}
			return nil
		})
	})

	t.Run("automatic approval", func(t *testing.T) {
		pilot, err := h.UserConfig("autopilot")
		if err != nil {
			t.Fatal(err)
		}
		h.register(t, "auto", "autopilot")
		a := h.ask(t, pilot, "auto", "agent1")
		h.stillPending(t, "auto", a)
		h.decide(t, "auto", true, longAgo)
		h.issued(t, a, "approves requests of")
	})

	t.Run("concurrent approval", func(t *testing.T) {
		h.register(t, "many", "system:bootstrap:abcdef")
		var expected []string
		for i := range 5 {
			expected = append(expected, h.ask(t, bootstrap, "many", fmt.Sprintf("agent%d", i)).name)
		}
		slices.Sort(expected)
		h.decide(t, "many", true, time.Now())
		var running sync.WaitGroup
		for range 4 {
			running.Go(func() {
				names, err := h.approver.ApprovePending(t.Context(), "many")
				if err != nil || !slices.Equal(names, expected) {
					t.Errorf("ApprovePending(many) = %q, want %q; error %v", names, expected, err)
				}
			})
		}
		running.Wait()
	})

	t.Run("flood", func(t *testing.T) {
		h.register(t, "victim", "system:bootstrap:abcdef")
		h.flood(t)
		own := h.ask(t, bootstrap, "victim", "agent1")
		h.decide(t, "victim", true, time.Now())
		h.issued(t, own, "the cluster was accepted by")
	})

	t.Run("no permissions of other users", func(t *testing.T) {
		h.register(t, "rights", "system:bootstrap:abcdef")
		h.decide(t, "rights", true, time.Now().Add(time.Hour))
		key := newKey(t)
		client, err := kubernetes.NewForConfig(bootstrap)
		if err != nil {
			t.Fatal(err)
		}
		for _, template := range []*x509.CertificateRequest{
			named(identityPrefix+"rights:agent1:x", identityPrefix+"rights"),
			named(identityPrefix+"rights:agent1", identityPrefix+"rights", identityPrefix+"cluster2"),
			named(identityPrefix+"rights:agent1", identityPrefix+"rights", allGroup, "system:monitoring"),
			named(identityPrefix+"cluster2:agent1", identityPrefix+"cluster2"),
		} {
			request, err := client.CertificatesV1().CertificateSigningRequests().Create(t.Context(), newRequest("rights", encode(t, key, template)), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			h.stillPending(t, "rights", asked{name: request.Name})
		}
	})
}

// flood has an agent of a cluster create more CertificateSigningRequests than the limit: for its
// own cluster, for another cluster and for a missing cluster. The server deletes the requests above
// the limit.
func (h *hub) flood(t *testing.T) {
	t.Helper()
	config, err := h.UserConfig(identityPrefix+"flood:agent", identityPrefix+"flood")
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	content := encode(t, newKey(t), named(identityPrefix+"flood:agent", identityPrefix+"flood"))
	requests := client.CertificatesV1().CertificateSigningRequests()
	for i := range csr.DefaultMaxRequests + 30 {
		request := newRequest([]string{"flood", "victim", "nowhere"}[i%3], content)
		request.Name = fmt.Sprintf("flood-%03d", i)
		if _, err := requests.Create(t.Context(), request, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	await.Eventually(t, "the requests above the limit are deleted", func() error {
		all, err := requests.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		count := 0
		for _, request := range all.Items {
			if strings.HasPrefix(request.Name, "flood-") {
				count++
			}
		}
		if count != csr.DefaultMaxRequests {
			return fmt.Errorf("requests = %d, want %d", count, csr.DefaultMaxRequests)
		}
		return nil
	})
}
