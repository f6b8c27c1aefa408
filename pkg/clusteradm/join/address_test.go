package join

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
)

func pemOf(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// otherAuthority returns a certificate that verifies no other.
func otherAuthority(t *testing.T) []byte {
	t.Helper()
	content, _, err := cert.GenerateSelfSignedCertKey("other.example.com", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// A hub can publish its certificate authority, as kubeadm does. The command sends no token to a hub that is not verified.
func TestJoinReadsPublishedAuthority(t *testing.T) {
	const cluster = "/apis/cluster.open-cluster-management.io/v1/managedclusters/c1"
	var sent []string
	var publishes bool
	var published []byte
	var hub *httptest.Server
	hub = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			sent = append(sent, r.URL.Path)
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == cluster {
			_, _ = fmt.Fprint(w, `{"kind":"ManagedCluster","apiVersion":"cluster.open-cluster-management.io/v1"}`)
			return
		}
		if r.URL.Path != "/api/v1/namespaces/kube-public/configmaps/cluster-info" || !publishes {
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
			return
		}
		config := clientcmdapi.NewConfig()
		if published == nil {
			published = pemOf(hub.Certificate().Raw)
		}
		config.Clusters[""] = &clientcmdapi.Cluster{Server: hub.URL, CertificateAuthorityData: published}
		content, err := clientcmd.Write(*config)
		if err != nil {
			t.Error(err)
		}
		if err := json.NewEncoder(w).Encode(&corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Data: map[string]string{manifests.KubeconfigKey: string(content)}}); err != nil {
			t.Error(err)
		}
	}))
	defer hub.Close()
	var errOut bytes.Buffer
	env := cli.Environment{IOStreams: genericiooptions.IOStreams{ErrOut: &errOut}}
	address := &Address{server: hub.URL, token: "secret"}
	if _, _, err := address.Check(t.Context(), env, "c1"); err == nil || !strings.Contains(err.Error(), "--ca-file") || len(sent) > 0 {
		t.Errorf("Check() without cluster-info = %v after requests with credentials %q, want an error that contains --ca-file, and none", err, sent)
	}
	publishes = true
	if _, exists, err := address.Check(t.Context(), env, "c1"); err != nil || !exists {
		t.Errorf("Check() with cluster-info = %t, %v, want true", exists, err)
	}
	if string(address.ca) != string(pemOf(hub.Certificate().Raw)) || !strings.Contains(errOut.String(), "SHA-256") {
		t.Errorf("Check() reads %s with output %q, want the published authority and a warning with its hash", address.ca, &errOut)
	}
	if !slices.Equal(sent, []string{cluster}) {
		t.Errorf("requests with credentials = %q, want only one, of the verified hub", sent)
	}

	// The authority that the hub publishes must verify it.
	published = otherAuthority(t)
	address, sent = &Address{server: hub.URL, token: "secret"}, nil
	if _, _, err := address.Check(t.Context(), env, "c1"); err == nil || !strings.Contains(err.Error(), "--ca-file") || len(sent) > 0 {
		t.Errorf("Check() with another authority = %v after requests with credentials %q, want an error that contains --ca-file, and none", err, sent)
	}

	// If the hub cannot be reached, nothing shows that the system trusts it.
	address = &Address{server: "https://127.0.0.1:1", token: "secret"}
	if _, _, err := address.Check(t.Context(), env, "c1"); err == nil || !strings.Contains(err.Error(), "--ca-file") {
		t.Errorf("Check() of a hub that cannot be reached = %v, want an error that contains --ca-file", err)
	}
}
