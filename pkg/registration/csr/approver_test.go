package csr

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/fake"
)

// The registration names the last ten agents with an approved request.
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
		t.Fatalf("status.csr without approved first requests = %v, %v, want nil", kept.Status.CSR, err)
	}
	kept, err := a.keepAgents(t.Context(), record, append(none, requests...))
	if err != nil {
		t.Fatal(err)
	}
	expected := []string{"agent08", "agent07", "agent06", "agent05", "agent04", "agent03", "agent02", "agent01", "agent00", "agent11"}
	if !slices.Equal(kept.Status.CSR.Agents, expected) {
		t.Errorf("agents of the registration = %q, want %q", kept.Status.CSR.Agents, expected)
	}
	a.options.Records = nil // another write would fail
	if _, err := a.keepAgents(t.Context(), kept, requests); err != nil {
		t.Error(err)
	}
}
