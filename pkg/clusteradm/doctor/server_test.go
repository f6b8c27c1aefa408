package doctor

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	"k8s.io/utils/ptr"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
)

// TestServerDoesNotChooseTheAddress checks that the doctor reads nothing from a server that the caBundle does not verify,
// and follows no redirect.
func TestServerDoesNotChooseTheAddress(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("request of %s, want none", r.URL) }))
	defer other.Close()
	server := httptest.NewTLSServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer server.Close()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	doctor := &hubDoctor{report: report{Clients: &cli.Clients{Config: &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: authority}}}}}
	client, _, err := doctor.serverClient(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := get(t.Context(), client, server.URL+"/readyz"); !cli.IsCertificateError(err) {
		t.Errorf("get() without a caBundle = %v, want that the authority of the hub does not verify the server", err)
	}
	if client, _, err = doctor.serverClient(authority); err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	if _, err := get(t.Context(), client, server.URL+"/readyz"); !cli.IsCertificateError(err) {
		t.Errorf("get() of a server with another name = %v, want that its certificate is not verified", err)
	}
	client.Transport.(*http.Transport).TLSClientConfig.ServerName = "example.com"
	got, err := get(t.Context(), client, server.URL+"/readyz")
	if err != nil || got.status != http.StatusFound || got.tls == nil {
		t.Errorf("get() = %+v, %v, want the redirect and the TLS connection of the server", got, err)
	}
}

// TestServerStarts checks that the doctor says wait, and not to delete the Secret, about a server that starts: it serves with
// another certificate than its APIServices name, or they name none.
func TestServerStarts(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	labels := map[string]string{"app": manifests.ServerName}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: manifests.HubNamespace, Name: manifests.ServerName},
		Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}
	service := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v1.work.open-cluster-management.io"}}
	service.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: manifests.HubNamespace, Name: manifests.ServerName}
	authority, _, err := certutil.GenerateSelfSignedCertKey("other", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		bundle    []byte
		available int32
		want      string
	}{
		"no caBundle":           {nil, 1, cli.StateUnknown},
		"another certificate":   {authority, 0, cli.StateUnknown},
		"certificate not right": {authority, 1, cli.StateBad},
	} {
		service.Spec.CABundle = test.bundle
		deployment.Status = appsv1.DeploymentStatus{Replicas: test.available, UpdatedReplicas: test.available, AvailableReplicas: test.available}
		doctor := &hubDoctor{server: strings.TrimPrefix(server.URL, "https://"), report: report{Clients: &cli.Clients{
			Config: &rest.Config{}, Kube: fake.NewClientset(deployment), APIServices: aggregatorfake.NewSimpleClientset(service).ApiregistrationV1().APIServices(),
		}}}
		findings, err := doctor.checkServer(t.Context())
		if err != nil || len(findings) == 0 {
			t.Fatalf("checkServer() with %s = %+v, %v, want findings", name, findings, err)
		}
		if f := findings[len(findings)-1]; f.State != test.want || strings.Contains(f.Remedy, "delete") != (test.want == cli.StateBad) {
			t.Errorf("checkServer() with %s = %+v, want %s", name, f, test.want)
		}
	}
	service.Spec.CABundle = nil
	if f := apiServiceFinding(service); f.State != cli.StateBad || strings.Contains(f.Remedy, "delete") {
		t.Errorf("apiServiceFinding() without caBundle = %+v, want %s without deletion", f, cli.StateBad)
	}
}

// TestBackend checks that the doctor connects to the port of the APIServices, and prefers a Pod that is ready.
func TestBackend(t *testing.T) {
	service := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "metrics", Port: 9090}, {Name: "https", Port: 443}}}}
	endpoint := func(pod string, ready, terminating bool) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{TargetRef: &corev1.ObjectReference{Name: pod}, Conditions: discoveryv1.EndpointConditions{Ready: &ready, Terminating: &terminating}}
	}
	slice := func(endpoints ...discoveryv1.Endpoint) discoveryv1.EndpointSlice {
		return discoveryv1.EndpointSlice{Endpoints: endpoints, Ports: []discoveryv1.EndpointPort{{Name: ptr.To("metrics"), Port: ptr.To[int32](9000)}, {Name: ptr.To("https"), Port: ptr.To[int32](6443)}}}
	}
	starting, ends, ready := endpoint("starting", false, false), endpoint("ends", true, true), endpoint("ready", true, false)
	elsewhere := slice(ready)
	elsewhere.Ports = elsewhere.Ports[:1]
	for name, test := range map[string]struct {
		port   int32
		slices []discoveryv1.EndpointSlice
		pod    string
		target int32
	}{
		"ready":              {443, []discoveryv1.EndpointSlice{slice(starting, ends), slice(starting, ready)}, "ready", 6443},
		"starting":           {443, []discoveryv1.EndpointSlice{slice(ends, starting)}, "starting", 6443},
		"another port":       {9090, []discoveryv1.EndpointSlice{slice(ready)}, "ready", 9000},
		"unknown port":       {8443, []discoveryv1.EndpointSlice{slice(ready)}, "", 0},
		"no Pod has it":      {443, []discoveryv1.EndpointSlice{elsewhere}, "", 0},
		"no Pod that stays":  {443, []discoveryv1.EndpointSlice{slice(ends)}, "", 0},
		"an address, no Pod": {443, []discoveryv1.EndpointSlice{slice(discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}})}, "", 0},
	} {
		if pod, target := backend(service, test.slices, test.port); pod != test.pod || target != test.target {
			t.Errorf("%s: backend() = %q, %d, want %q, %d", name, pod, target, test.pod, test.target)
		}
	}
}

// TestRefusedRequests checks that the doctor tells the decision of an administrator from a failure of the signer.
func TestRefusedRequests(t *testing.T) {
	request := func(name string, condition certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequest {
		return &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}},
			Spec:       certificatesv1.CertificateSigningRequestSpec{SignerName: certificatesv1.KubeAPIServerClientSignerName},
			Status:     certificatesv1.CertificateSigningRequestStatus{Conditions: []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved}, {Type: condition}}},
		}
	}
	kube := fake.NewClientset(request("a", certificatesv1.CertificateDenied), request("b", certificatesv1.CertificateFailed))
	findings, err := (&hubDoctor{report: report{Clients: &cli.Clients{Kube: kube}}}).requests(t.Context())
	if err != nil || len(findings) != 1 || !strings.Contains(findings[0].Cause, "a of c1 (Denied)") || !strings.Contains(findings[0].Cause, "b of c1 (Failed)") {
		t.Errorf("requests() = %+v, %v, want one finding with both requests and their conditions", findings, err)
	}
}
