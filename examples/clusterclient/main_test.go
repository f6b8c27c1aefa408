package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

const (
	// commandVariable is the environment variable that makes the test binary run the command.
	commandVariable = "EXAMPLE_TOKENS_COMMAND"
	robot           = "robot"
	token           = "secret"
)

func TestMain(m *testing.M) {
	if os.Getenv(commandVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// command runs the command in a separate process, as a user does.
func command(t *testing.T, args ...string) (out, notes string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	process := exec.CommandContext(t.Context(), os.Args[0], args...)
	process.Env = append(os.Environ(), commandVariable+"=1")
	process.Stdout, process.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := process.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), process.ProcessState.ExitCode()
}

// hub is a server that is both the hub and the API server of every cluster that responds.
type hub struct {
	*httptest.Server
	kubeconfig string

	mu       sync.Mutex
	accounts authenticationv1beta1.ManagedServiceAccountList
	secrets  map[string]corev1.Secret
	clusters map[string]clusterv1.ManagedCluster
	// forbidden contains the clusters with a Secret that the user may not read.
	forbidden map[string]bool
}

func newHub(t *testing.T) *hub {
	t.Helper()
	h := &hub{secrets: map[string]corev1.Secret{}, clusters: map[string]clusterv1.ManagedCluster{}, forbidden: map[string]bool{}}
	h.Server = httptest.NewTLSServer(h)
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })

	config := clientcmdapi.NewConfig()
	config.Clusters["hub"] = &clientcmdapi.Cluster{Server: h.URL, CertificateAuthorityData: h.ca()}
	config.Contexts["hub"] = &clientcmdapi.Context{Cluster: "hub"}
	config.CurrentContext = "hub"
	h.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, h.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *hub) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
}

// add adds a cluster with a ready account, and with a Secret if token is not empty.
func (h *hub) add(name, address, token string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.accounts.Items = append(h.accounts.Items, authenticationv1beta1.ManagedServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: robot},
		Status: authenticationv1beta1.ManagedServiceAccountStatus{Conditions: []metav1.Condition{
			{Type: authenticationv1beta1.ConditionTokenReported, Status: metav1.ConditionTrue}}},
	})
	h.clusters[name] = clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       clusterv1.ManagedClusterSpec{ManagedClusterClientConfigs: []clusterv1.ClientConfig{{URL: address}}},
	}
	if token == "" {
		return
	}
	h.secrets[name] = corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: robot, Labels: map[string]string{authenticationv1beta1.ManagedServiceAccountLabel: "true"}},
		Data:       map[string][]byte{authenticationv1beta1.SecretTokenKey: []byte(token), authenticationv1beta1.SecretCAKey: h.ca()},
	}
}

// forbid adds a cluster with a Secret that the user may not read.
func (h *hub) forbid(name string) {
	h.add(name, h.URL, token)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forbidden[name] = true
}

// ServeHTTP implements http.Handler.
func (h *hub) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	code, answer := h.answer(request)
	if request.URL.Query().Get("watch") != "" && code == http.StatusOK {
		w.WriteHeader(code)
		w.(http.Flusher).Flush()
		<-request.Context().Done()
		return
	}
	if code != http.StatusOK {
		answer = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
			Code: int32(code), Reason: answer.(metav1.StatusReason), Message: "says the server"}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer)
}

func (h *hub) answer(request *http.Request) (code int, answer any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	query := request.URL.Query()
	if query.Get("sendInitialEvents") != "" {
		return http.StatusUnprocessableEntity, metav1.StatusReasonInvalid // the client falls back to lists
	}
	version := metav1.ListMeta{ResourceVersion: "1"}
	switch parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/"); {
	case request.URL.Path == "/api":
		return http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case request.URL.Path == "/apis":
		return http.StatusOK, metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	case request.URL.Path == "/api/v1":
		return http.StatusOK, metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"}, GroupVersion: "v1",
			APIResources: []metav1.APIResource{{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: metav1.Verbs{"list"}}}}
	case parts[len(parts)-1] == "configmaps":
		if request.Header.Get("Authorization") != "Bearer "+token {
			return http.StatusForbidden, metav1.StatusReasonForbidden
		}
		return http.StatusOK, corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"},
			Items: []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}}}
	case parts[len(parts)-1] == "managedserviceaccounts":
		list := h.accounts
		list.TypeMeta = metav1.TypeMeta{Kind: "ManagedServiceAccountList", APIVersion: authenticationv1beta1.SchemeGroupVersion.String()}
		return http.StatusOK, list
	case parts[len(parts)-1] == "managedclusters":
		list := clusterv1.ManagedClusterList{TypeMeta: metav1.TypeMeta{Kind: "ManagedClusterList", APIVersion: clusterv1.SchemeGroupVersion.String()}, ListMeta: version}
		if one, ok := h.clusters[strings.TrimPrefix(query.Get("fieldSelector"), "metadata.name=")]; ok {
			list.Items = append(list.Items, one)
		}
		return http.StatusOK, list
	case len(parts) == 5 && parts[4] == "secrets":
		if h.forbidden[parts[3]] {
			return http.StatusForbidden, metav1.StatusReasonForbidden
		}
		list := corev1.SecretList{TypeMeta: metav1.TypeMeta{Kind: "SecretList", APIVersion: "v1"}, ListMeta: version}
		if one, ok := h.secrets[parts[3]]; ok {
			list.Items = append(list.Items, one)
		}
		return http.StatusOK, list
	}
	return http.StatusNotFound, metav1.StatusReasonNotFound
}

// silent returns the address of a server that never responds.
func silent(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return "https://" + listener.Addr().String()
}

// matches fails the test unless the text has one line for each element of want, and each line
// contains all parts of its element.
func matches(t *testing.T, what, got string, want ...[]string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
	if len(lines) != len(want) {
		t.Errorf("%s has %d lines, want %d:\n%s", what, len(lines), len(want), got)
		return
	}
	for i, parts := range want {
		for _, part := range parts {
			if !strings.Contains(lines[i], part) {
				t.Errorf("%s, line %d = %s, want a line that contains %q", what, i+1, lines[i], part)
			}
		}
	}
}

// A cluster that does not respond, rejects the request or has no readable Secret does not
// affect the others. The output contains one line about each.
func TestSomeClustersFail(t *testing.T) {
	h := newHub(t)
	dead := silent(t)
	for _, name := range []string{"c6", "c2"} {
		h.add(name, h.URL, token)
	}
	for _, name := range []string{"c3", "c1"} {
		h.add(name, dead, token)
	}
	h.add("c5", h.URL, "another")
	h.add("c4", h.URL, "")
	h.forbid("c7")
	// The timeout is shorter than client-go's timeout of the TLS handshake.
	out, notes, code := command(t, "--kubeconfig", h.kubeconfig, "--timeout", "5s", "--account", robot, "list", "configmaps", "-n", "default")
	if code != 1 {
		t.Errorf("exit code = %d, want 1", code)
	}
	matches(t, "stdout", out, []string{"CLUSTER", "NAMESPACE", "NAME"}, []string{"c2 ", "default", "a"}, []string{"c6 ", "default", "a"})
	matches(t, "stderr", notes,
		[]string{"cluster c1 at " + dead + ": ", dead + "/api?", "deadline exceeded"},
		[]string{"cluster c3 at " + dead + ": ", "deadline exceeded"},
		[]string{"cluster c4: ", "there is no Secret robot in namespace c4"},
		[]string{"cluster c5 at " + h.URL + ": ", "says the server"},
		[]string{"cluster c7: ", "request to the hub " + h.URL + ": says the server"},
		[]string{"error: 5 of 7 clusters failed"})
}

func TestAllClustersAnswer(t *testing.T) {
	h := newHub(t)
	for _, name := range []string{"c2", "c1"} {
		h.add(name, h.URL, token)
	}
	out, notes, code := command(t, "--kubeconfig", h.kubeconfig, "--account", robot, "list", "configmaps")
	if code != 0 || notes != "" {
		t.Errorf("exit code = %d, stderr %q, want 0 and an empty stderr", code, notes)
	}
	matches(t, "stdout", out, []string{"CLUSTER"}, []string{"c1 "}, []string{"c2 "})
}

// If the hub does not respond, the command also ends within its timeout. The user does not see the
// log of client-go.
func TestHubDoesNotAnswer(t *testing.T) {
	h := newHub(t)
	content, err := os.ReadFile(h.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	dead := silent(t)
	if err := os.WriteFile(h.kubeconfig, bytes.ReplaceAll(content, []byte(h.URL), []byte(dead)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{nil, {"--cluster", "c1"}} {
		out, notes, code := command(t, append(args, "--kubeconfig", h.kubeconfig, "--timeout", "100ms", "--account", robot, "list", "configmaps")...)
		if code != 1 || !strings.Contains(notes, dead) || !strings.Contains(notes, "deadline exceeded") || strings.Contains(notes, "reflector") || strings.Contains(notes, "Run is not running") {
			t.Errorf("command(%v) = exit code %d, output %s%s, want 1 and only the deadline of %s", args, code, out, notes, dead)
		}
	}
}
