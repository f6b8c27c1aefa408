package clusteradm

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
)

// decidingHub is a hub that serves the accept subresource. It records the decisions.
type decidingHub struct {
	t  *testing.T
	mu sync.Mutex
	// decisions are the bodies of the requests, by cluster.
	decisions map[string]registerv1alpha1.ManagedClusterAcceptance
	// unavailable is the number of requests until the hub reaches the server, and absent until the ManagedCluster exists.
	unavailable, absent int

	requests []certificatesv1.CertificateSigningRequest
}

func (h *decidingHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	cluster := clusterv1.ManagedCluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1.SchemeGroupVersion.String(), Kind: "ManagedCluster"},
		ObjectMeta: metav1.ObjectMeta{Name: "c1", UID: "uid-of-c1"},
	}
	var answer any
	switch r.Method + " " + r.URL.Path {
	case "GET /apis/cluster.open-cluster-management.io/v1/managedclusters/c1":
		refuse := func(err *apierrors.StatusError) {
			status := err.Status()
			status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(int(status.Code))
			if err := json.NewEncoder(w).Encode(status); err != nil {
				h.t.Error(err)
			}
		}
		if h.unavailable > 0 {
			h.unavailable--
			refuse(apierrors.NewServiceUnavailable("the server starts"))
			return
		}
		if h.absent > 0 {
			h.absent--
			refuse(apierrors.NewNotFound(clusterv1.Resource("managedclusters"), "c1"))
			return
		}
		if decided, ok := h.decisions["c1"]; ok {
			cluster.Status.Conditions = []metav1.Condition{{Type: clusterv1.ManagedClusterConditionHubAccepted, Status: metav1.ConditionFalse, Reason: "Denied"}}
			if decided.Spec.Accepted {
				cluster.Status.Conditions[0].Status = metav1.ConditionTrue
			}
		}
		answer = cluster
	case "GET /apis/certificates.k8s.io/v1/certificatesigningrequests":
		answer = certificatesv1.CertificateSigningRequestList{TypeMeta: metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequestList"}, Items: h.requests}
	case "PUT /apis/" + registerv1alpha1.SchemeGroupVersion.String() + "/managedclusters/c1/accept":
		if h.decisions == nil {
			http.NotFound(w, r)
			return
		}
		var decision registerv1alpha1.ManagedClusterAcceptance
		if err := json.NewDecoder(r.Body).Decode(&decision); err != nil {
			h.t.Error(err)
		}
		h.decisions["c1"] = decision
		decision.TypeMeta = metav1.TypeMeta{APIVersion: registerv1alpha1.SchemeGroupVersion.String(), Kind: "ManagedClusterAcceptance"}
		decision.Status.Driver = registerv1alpha1.DriverCSR
		decision.Status.ApprovedRequests = []string{"c1-abcde"}
		answer = decision
	default:
		h.t.Errorf("request %s %s, want only reads of the fixture and a PUT of accept", r.Method, r.URL)
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		h.t.Error(err)
	}
}

func newDecidingHub(t *testing.T) (*decidingHub, func(args ...string) outcome) {
	hub := &decidingHub{t: t, decisions: map[string]registerv1alpha1.ManagedClusterAcceptance{}}
	server := httptest.NewServer(hub)
	t.Cleanup(server.Close)
	return hub, func(args ...string) outcome {
		return runCommand(t, append([]string{"--server", server.URL, "accept", "--clusters=c1"}, args...)...)
	}
}

// If the hub serves the accept subresource, the command sends the decision there and
// changes no other object.
func TestAcceptPutsADecision(t *testing.T) {
	hub, accept := newDecidingHub(t)
	accept("--wait", "--reason=known", "--requesters=alice").done(t).
		shows(t, "c1: accepted by csr; approved c1-abcde", "c1: the cluster has access to the hub")
	decision := hub.decisions["c1"]
	if !decision.Spec.Accepted || decision.Spec.Reason != "known" || len(decision.Spec.Requesters) != 1 || decision.Spec.Requesters[0] != "alice" {
		t.Errorf("decision = %+v, want accepted with reason known and requester alice", decision.Spec)
	}
	// The UID prevents the acceptance of another cluster of the same name.
	if decision.UID != "uid-of-c1" {
		t.Errorf("UID of the decision = %q, want uid-of-c1", decision.UID)
	}
	accept("--wait", "--deny", "--reason=leaked").done(t).shows(t, "c1: denied", "c1: the cluster has no access to the hub")
	if decision := hub.decisions["c1"]; decision.Spec.Accepted || decision.Spec.Reason != "leaked" {
		t.Errorf("decision = %+v, want denied with reason leaked", decision.Spec)
	}
}

// With --wait, the command waits until the cluster has requested to join.
func TestAcceptWaitsForTheCluster(t *testing.T) {
	hub, accept := newDecidingHub(t)
	hub.absent = 3
	accept().refused(t, "c1: the ManagedCluster does not exist")
	accept("--wait").done(t).shows(t, "c1: waiting for the cluster to request to join", "c1: accepted by csr", "c1: the cluster has access to the hub")
}

// With --wait, the command waits until the hub reaches the server.
func TestAcceptWaitsForTheServer(t *testing.T) {
	hub, accept := newDecidingHub(t)
	hub.unavailable = 3
	accept().refused(t, "the server starts")
	accept("--wait").done(t).shows(t, "c1: waiting for the hub: the server starts", "c1: accepted by csr", "c1: the cluster has access to the hub")
}

// On a hub that runs OCM, the command names what to use instead, and what to check.
func TestAcceptOnAHubThatRunsOCM(t *testing.T) {
	hub, accept := newDecidingHub(t)
	hub.decisions = nil
	accept().refused(t, "c1: this hub runs OCM", "spec.hubAcceptsClient", "system:open-cluster-management:c1:")
}

// The output of --skip-approve-check contains each requester once.
func TestAcceptOfEveryRequester(t *testing.T) {
	hub, accept := newDecidingHub(t)
	request := func(user, signer string, conditions ...certificatesv1.CertificateSigningRequestCondition) certificatesv1.CertificateSigningRequest {
		return certificatesv1.CertificateSigningRequest{
			Spec:   certificatesv1.CertificateSigningRequestSpec{Username: user, SignerName: signer},
			Status: certificatesv1.CertificateSigningRequestStatus{Conditions: conditions},
		}
	}
	hub.requests = []certificatesv1.CertificateSigningRequest{
		request("bob", certificatesv1.KubeAPIServerClientSignerName),
		request("bob", certificatesv1.KubeAPIServerClientSignerName),
		request("carol", "example.com/other"),
		request("dave", certificatesv1.KubeAPIServerClientSignerName, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateDenied}),
	}
	accept("--skip-approve-check").done(t)
	if requesters := hub.decisions["c1"].Spec.Requesters; len(requesters) != 1 || requesters[0] != "bob" {
		t.Errorf("requesters of the decision = %q, want bob only", requesters)
	}
}
