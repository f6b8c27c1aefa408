package csr

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

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/fake"
)

// Agents get the certificates that they may have, and nothing else, from a real hub that
// knows them by these afterwards.
func TestApprover(t *testing.T) {
	h := startHub(t, "autopilot")
	bootstrap, err := h.UserConfig("system:bootstrap:abcdef", BootstrapGroup)
	if err != nil {
		t.Fatal(err)
	}
	account, err := h.ServiceAccountConfig(t.Context(), "open-cluster-management", "cluster-bootstrap")
	if err != nil {
		t.Fatal(err)
	}
	longAgo := time.Now().Add(-time.Hour)

	t.Run("life of an agent", func(t *testing.T) {
		first := h.ask(t, bootstrap, "cluster1", "agent1")
		h.stillPending(t, "cluster1", first)
		h.register(t, "cluster1", "system:bootstrap:abcdef")
		h.stillPending(t, "cluster1", first)

		h.decide(t, "cluster1", true, time.Now())
		agent := h.issued(t, first, "the cluster was accepted by")
		expectUser(t, agent, identityPrefix+"cluster1:agent1", identityPrefix+"cluster1", allGroup)
		eventually(t, "the agent is known", func() error {
			if agents := h.agents(t, "cluster1"); !slices.Equal(agents, []string{"agent1"}) {
				return fmt.Errorf("the agents are %q", agents)
			}
			return nil
		})

		// Another one with the bootstrap token comes later.
		h.decide(t, "cluster1", true, longAgo)
		second := h.ask(t, bootstrap, "cluster1", "agent2")
		h.stillPending(t, "cluster1", second)
		h.decide(t, "cluster1", true, time.Now())
		h.issued(t, second, "the cluster was accepted by")
		h.decide(t, "cluster1", true, longAgo)

		// The hub lets an agent renew only what its role says.
		renewal := h.ask(t, agent, "cluster1", "agent1")
		h.stillPending(t, "cluster1", renewal)
		h.grant(t, "cluster1", []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: identityPrefix + "cluster1"}}, rbacv1.PolicyRule{
			APIGroups: []string{registerv1alpha1.GroupName}, Resources: []string{"managedclusters/clientcertificates"}, ResourceNames: []string{"cluster1"}, Verbs: []string{"renew"},
		})
		eventually(t, "the hub knows the role", func() error {
			_, err := h.approver.ApprovePending(t.Context(), "cluster1")
			if isPending(h.request(t, renewal)) {
				return errors.Join(errors.New("the request is pending"), err)
			}
			return err
		})
		renewed := h.issued(t, renewal, "renews its own certificate")
		expectUser(t, renewed, identityPrefix+"cluster1:agent1", identityPrefix+"cluster1", allGroup)
		h.issued(t, h.ask(t, renewed, "cluster1", "agent1"), "renews its own certificate")
		if agents := h.agents(t, "cluster1"); !slices.Equal(agents, []string{"agent1", "agent2"}) {
			t.Errorf("the agents are %q", agents)
		}

		// Its certificate is for itself.
		h.register(t, "cluster2", "system:bootstrap:abcdef")
		h.decide(t, "cluster2", true, time.Now().Add(time.Hour))
		h.stillPending(t, "cluster2", h.ask(t, renewed, "cluster2", "agent1"))
		h.stillPending(t, "cluster1", h.ask(t, renewed, "cluster1", "agent3"))

		// A denied cluster gets nothing more, nor does one that is deleted.
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
		h.issued(t, h.ask(t, bootstrap, "late", "agent1"), "no agent of it has a certificate")
		eventually(t, "the agent is known", func() error {
			if agents := h.agents(t, "late"); !slices.Equal(agents, []string{"agent1"}) {
				return fmt.Errorf("the agents are %q", agents)
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
		eventually(t, "the agent is known", func() error {
			if agents := h.agents(t, "hand"); !slices.Equal(agents, []string{"agent1"}) {
				return fmt.Errorf("the agents are %q", agents)
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

	t.Run("several at once", func(t *testing.T) {
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
					t.Errorf("it approved %q, not %q: %v", names, expected, err)
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

	t.Run("no rights beyond", func(t *testing.T) {
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
			request := requestOf("", encode(t, key, template))
			request.ObjectMeta = metav1.ObjectMeta{GenerateName: "rights-", Labels: map[string]string{clusterv1.ClusterNameLabel: "rights"}}
			request, err := client.CertificatesV1().CertificateSigningRequests().Create(t.Context(), request, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			h.stillPending(t, "rights", asked{name: request.Name})
		}
	})
}

// Approved requests have the registration name their agents, the last ten.
func TestAgentsOfARegistration(t *testing.T) {
	key := newKey(t)
	registered := metav1.NewTime(decidedAt)
	record := accepted(requestOf(creator, nil)).registration
	record.CreationTimestamp = registered
	var requests []*certificatesv1.CertificateSigningRequest
	request := func(user, agent string, at time.Duration) *certificatesv1.CertificateSigningRequest {
		r := requestOf(user, encode(t, key, named(identityPrefix+agent, identityPrefix+strings.Split(agent, ":")[0])))
		r.Labels = nil
		r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
			Type: certificatesv1.CertificateApproved, LastUpdateTime: metav1.NewTime(decidedAt.Add(at)),
		}}
		return r
	}
	for i := range 12 {
		requests = append(requests, request(creator, fmt.Sprintf("cluster1:agent%02d", i), time.Duration(12-i)*time.Second))
	}
	requests = append(requests, request(creator, "cluster1:agent11", time.Minute))
	none := []*certificatesv1.CertificateSigningRequest{
		request(creator, "cluster1:before", -time.Second),
		request(creator, "cluster2:agent1", time.Minute),
		request(identityPrefix+"cluster1:renewed", "cluster1:renewed", time.Minute),
		requestOf(creator, encode(t, key, named(identityPrefix+"cluster1:pending", ownGroup))),
	}

	server := fake.NewSimpleClientset()
	if err := server.Tracker().Create(registrations, record, ""); err != nil {
		t.Fatal(err)
	}
	a := &Approver{options: Options{Records: &records{tracker: server.Tracker()}}}
	if kept, err := a.keepAgents(t.Context(), record, none); err != nil || kept.Status.CSR != nil {
		t.Fatalf("the agents are %v: %v", kept.Status.CSR, err)
	}
	kept, err := a.keepAgents(t.Context(), record, append(none, requests...))
	if err != nil {
		t.Fatal(err)
	}
	expected := []string{"agent08", "agent07", "agent06", "agent05", "agent04", "agent03", "agent02", "agent01", "agent00", "agent11"}
	if !slices.Equal(kept.Status.CSR.Agents, expected) {
		t.Errorf("the agents are %q, not %q", kept.Status.CSR.Agents, expected)
	}
	a.options.Records = nil // to write again would fail
	if _, err := a.keepAgents(t.Context(), kept, requests); err != nil {
		t.Error(err)
	}
}
