package join

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
)

func pemOf(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// A hub can publish its certificate authority, as kubeadm does. The command sends no token
// to a hub that is not verified.
func TestJoinReadsPublishedAuthority(t *testing.T) {
	var sent []string
	var publishes bool
	var hub *httptest.Server
	hub = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			sent = append(sent, r.URL.Path)
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path != "/api/v1/namespaces/kube-public/configmaps/cluster-info" || !publishes {
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
			return
		}
		config := clientcmdapi.NewConfig()
		config.Clusters[""] = &clientcmdapi.Cluster{Server: hub.URL, CertificateAuthorityData: pemOf(hub.Certificate().Raw)}
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
	if err := address.discover(t.Context(), env); err == nil || !strings.Contains(err.Error(), "--ca-file") {
		t.Errorf("discover() without cluster-info = %v, want an error that contains --ca-file", err)
	}
	publishes = true
	if err := address.discover(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	if string(address.ca) != string(pemOf(hub.Certificate().Raw)) || !strings.Contains(errOut.String(), "SHA-256") {
		t.Errorf("discover() = %s with output %q, want the published authority and a warning with its hash", address.ca, &errOut)
	}
	if len(sent) > 0 {
		t.Errorf("requests with credentials = %q, want none", sent)
	}
}
