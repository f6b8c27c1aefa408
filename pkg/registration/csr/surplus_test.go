package csr

import (
	"fmt"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

// flood has an agent of a cluster make more requests than it may have, for its own cluster,
// for others and for one that does not exist. The surplus is removed.
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
	for i := range DefaultMaxRequests + 30 {
		request := requestOf("", content)
		request.ObjectMeta = metav1.ObjectMeta{
			Name: fmt.Sprintf("flood-%03d", i), Labels: map[string]string{clusterv1.ClusterNameLabel: []string{"flood", "victim", "nowhere"}[i%3]},
		}
		if _, err := requests.Create(t.Context(), request, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the surplus is removed", func() error {
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
		if count != DefaultMaxRequests {
			return fmt.Errorf("requests = %d, want %d", count, DefaultMaxRequests)
		}
		return nil
	})
}

// Of each requester, only the oldest pending requests are looked at.
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

// What is too large for a request of an agent is not kept in memory, and left alone.
func TestSmall(t *testing.T) {
	request := requestOf("system:bootstrap:abcdef", encode(t, newKey(t), named(identityPrefix+"cluster1:agent", identityPrefix+"cluster1")))
	request.Name, request.Labels = "request", map[string]string{clusterv1.ClusterNameLabel: "cluster1"}
	if got := Small(request); got != any(request) {
		t.Errorf("Small(request of an agent) = %v, want it unchanged", got)
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
			t.Fatalf("%s: Small() = %v, want a small one of the same name and cluster", name, small)
		}
		if d := judge(input{request: small}); d.verdict != verdictIgnore {
			t.Errorf("%s: verdict = %v, want that it is left alone", name, d.verdict)
		}
	}
}
