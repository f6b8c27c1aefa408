package csr

import (
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

// Only the oldest pending requests of each requester are considered.
func TestConsidered(t *testing.T) {
	a := &Approver{options: Options{MaxRequests: 2}}
	at := func(user, name string, age time.Duration) *certificatesv1.CertificateSigningRequest {
		request := requestOf(user, nil)
		request.Name, request.CreationTimestamp = name, metav1.NewTime(decidedAt.Add(-age))
		return request
	}
	decided := at("flood", "decided", time.Hour)
	decided.Status.Certificate = []byte("certificate")
	var got []string
	for _, request := range a.considered([]*certificatesv1.CertificateSigningRequest{
		at("flood", "third", time.Second), at("flood", "second", 2*time.Second), decided, at("other", "own", 0), at("flood", "first", 3*time.Second),
	}) {
		got = append(got, request.Name)
	}
	if want := "first second own"; strings.Join(got, " ") != want {
		t.Errorf("considered() = %v, want %s", got, want)
	}
}

// A request that is too large for an agent is not kept in memory, and is ignored.
func TestSmall(t *testing.T) {
	request := requestOf("system:bootstrap:abcdef", encode(t, newKey(t), named(identityPrefix+"cluster1:agent", identityPrefix+"cluster1")))
	request.Name, request.Labels = "request", map[string]string{clusterv1.ClusterNameLabel: "cluster1"}
	if got := Small(request); got != any(request) {
		t.Errorf("Small(request of an agent) = %v, want the unchanged request", got)
	}
	for name, change := range map[string]func(*certificatesv1.CertificateSigningRequest){
		"request": func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Request = make([]byte, maxCachedBytes) },
		"annotations": func(r *certificatesv1.CertificateSigningRequest) {
			r.Annotations = map[string]string{"a": strings.Repeat("x", maxCachedBytes)}
		},
		"labels": func(r *certificatesv1.CertificateSigningRequest) {
			r.Labels["a"] = strings.Repeat("x", maxCachedBytes)
		},
	} {
		large := request.DeepCopy()
		change(large)
		small, ok := Small(large).(*certificatesv1.CertificateSigningRequest)
		if !ok || sizeOf(small) > 1000 || small.Name != request.Name || small.Labels[clusterv1.ClusterNameLabel] != "cluster1" {
			t.Fatalf("%s: Small() = %v, want a small request of the same name and cluster", name, small)
		}
		if d := judge(input{request: small}); d.verdict != verdictIgnore {
			t.Errorf("%s: verdict = %v, want %v", name, d.verdict, verdictIgnore)
		}
	}
}
