package clusteradm

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

func TestJoinRefuses(t *testing.T) {
	valid := map[string]string{"--hub-token": "token", "--hub-apiserver": "https://127.0.0.1:1", "--cluster-name": "c1"}
	for name, test := range map[string]struct {
		flags map[string]string
		want  string
	}{
		"no token":             {map[string]string{"--hub-token": ""}, "--hub-token is required"},
		"no hub":               {map[string]string{"--hub-apiserver": ""}, "--hub-apiserver is required"},
		"hub over HTTP":        {map[string]string{"--hub-apiserver": "http://hub.example.com"}, "https://"},
		"no name":              {map[string]string{"--cluster-name": ""}, "--cluster-name is required"},
		"bad name":             {map[string]string{"--cluster-name": "Cluster_1"}, `--cluster-name "Cluster_1"`},
		"bad namespace":        {map[string]string{"--agent-namespace": "a/b"}, "--agent-namespace"},
		"two drivers":          {map[string]string{"--registration-auth": "csr,aws-irsa"}, "must be a single driver"},
		"unknown driver":       {map[string]string{"--registration-auth": "grpc"}, "--registration-auth must be"},
		"no ARN of the hub":    {map[string]string{"--registration-auth": "aws-irsa"}, "--eks-hub-cluster-arn is required"},
		"bad ARN of the hub":   {map[string]string{"--registration-auth": "aws-irsa", "--hub-cluster-arn": "arn:aws:eks"}, "--eks-hub-cluster-arn: "},
		"other partition":      {map[string]string{"--registration-auth": "aws-irsa", "--hub-cluster-arn": hubARN, "--managed-cluster-arn": strings.Replace(managedARN, "arn:aws:eks:us-east-1", "arn:aws-cn:eks:cn-north-1", 1)}, "partition"},
		"ARN without aws-irsa": {map[string]string{"--managed-cluster-arn": managedARN}, "require --registration-auth=aws-irsa"},
		"no certificates":      {map[string]string{"--ca-data": "bm9uZQ=="}, "--ca-data"},
		"no file":              {map[string]string{"--ca-file": "does-not-exist"}, "--ca-file"},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"join"}
			for flag, value := range valid {
				if _, ok := test.flags[flag]; !ok {
					args = append(args, flag, value)
				}
			}
			for flag, value := range test.flags {
				args = append(args, flag, value)
			}
			runCommand(t, args...).refused(t, test.want)
		})
	}
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
		if err := json.NewEncoder(w).Encode(&corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Data: map[string]string{clusterInfoKey: string(content)}}); err != nil {
			t.Error(err)
		}
	}))
	defer hub.Close()
	if _, err := discoverTrust(t.Context(), hub.URL); err == nil || !strings.Contains(err.Error(), "--ca-file") {
		t.Errorf("discoverTrust() without cluster-info = %v, want an error that contains --ca-file", err)
	}
	publishes = true
	trust, err := discoverTrust(t.Context(), hub.URL)
	if err != nil {
		t.Fatal(err)
	}
	if string(trust.ca) != string(pemOf(hub.Certificate().Raw)) || trust.fingerprint == "" {
		t.Errorf("discoverTrust() = %s (fingerprint %q), want the published authority with a fingerprint", trust.ca, trust.fingerprint)
	}
	if len(sent) > 0 {
		t.Errorf("requests with credentials = %q, want none", sent)
	}
}
