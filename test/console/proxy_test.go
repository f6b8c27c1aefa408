package console

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// TestProxyNeedsItsSecret sends requests that are not those of the page to a running clusteradm console.
func TestProxyNeedsItsSecret(t *testing.T) {
	opened := openConsole(t, administrator(t, framework.Shared(t)))
	at := framework.Must(url.Parse(opened.first))(t)
	origin := "http://" + at.Host
	refused := func(what, method, address string, header http.Header) {
		t.Helper()
		if answer := send(t, client, method, address, "", header); answer.code != http.StatusForbidden || answer.status.Reason != metav1.StatusReasonForbidden || answer.header.Get("Location") != "" {
			t.Errorf("%s: %s %s = %d, location %q, want a Status with 403: %s", what, method, address, answer.code, answer.header.Get("Location"), answer.body)
		}
	}
	foreign := map[string]http.Header{
		"a name that resolves to this machine": {"Host": {"attacker.example:" + at.Port()}},
		"another port":                         {"Host": {"127.0.0.1:1"}},
		"no port":                              {"Host": {"127.0.0.1"}},
		"a page of another site":               {"Sec-Fetch-Site": {"cross-site"}},
		"a page on another port":               {"Sec-Fetch-Site": {"same-site"}},
		"another origin":                       {"Origin": {"http://127.0.0.1:1"}},
		"a hidden origin":                      {"Origin": {"null"}},
	}
	for what, header := range foreign {
		refused("token, "+what, http.MethodGet, opened.first, header)
	}
	refused("token with another method", http.MethodPost, opened.first, nil)
	refused("path without secret", http.MethodGet, origin+consolePath+"index.html", nil)
	refused("wrong token", http.MethodGet, origin+"/ABCDEFGHIJKLMNOPQRSTUVWXYZ", nil)
	refused("root", http.MethodGet, origin+"/", nil)

	base := enter(t, opened.first)
	refused("used token", http.MethodGet, opened.first, nil)
	opened.reports(t, "opened again")
	for what, header := range foreign {
		refused(what, http.MethodGet, base+consolePath+"index.html", header)
	}
	for _, header := range []http.Header{
		nil, {"Sec-Fetch-Site": {"same-origin"}, "Origin": {origin}}, {"Sec-Fetch-Site": {"none"}},
		{"Host": {"localhost:" + at.Port()}, "Origin": {"http://localhost:" + at.Port()}},
	} {
		if answer := send(t, client, http.MethodGet, base+consolePath+"index.html", "", header); answer.code != http.StatusOK || !strings.Contains(answer.header.Get("Content-Security-Policy"), "script-src 'self'") {
			t.Errorf("GET index.html with %v = %d, policy %q, want 200 and the policy of the server: %s", header, answer.code, answer.header.Get("Content-Security-Policy"), answer.body)
		}
	}
	if err := opened.stop(); err != nil {
		t.Errorf("clusteradm console after an interrupt: %v, want exit code 0\n%s", err, opened.errOut.String())
	}
}

// TestProxyForwardsWhatThePageNeeds checks that the proxy refuses requests that the user may send, but the page does not.
func TestProxyForwardsWhatThePageNeeds(t *testing.T) {
	f := framework.Shared(t)
	base := enter(t, openConsole(t, administrator(t, f)).first)
	cluster := "/apis/cluster.open-cluster-management.io/v1/managedclusters"
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{http.MethodGet, "/apis", "", http.StatusOK},
		{http.MethodGet, api, "", http.StatusOK},
		{http.MethodGet, cluster, "", http.StatusOK},
		{http.MethodGet, cluster + "/" + framework.Cluster1, "", http.StatusOK},
		{http.MethodGet, api + "/fleetresources?limit=1", "", http.StatusOK},
		{http.MethodGet, api + "/inventories", "", http.StatusOK},
		{http.MethodPost, api + "/searches", `{"spec":{"query":"kind:Namespace"}}`, http.StatusCreated},
		{http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`, http.StatusCreated},
		{http.MethodGet, "/api/v1/namespaces/default/secrets", "", http.StatusForbidden},
		{http.MethodGet, "/api/v1/namespaces", "", http.StatusForbidden},
		{http.MethodGet, "/apis/apps/v1/deployments", "", http.StatusForbidden},
		{http.MethodGet, "/openapi/v2", "", http.StatusForbidden},
		{http.MethodGet, "/metrics", "", http.StatusForbidden},
		{http.MethodDelete, cluster + "/" + framework.Cluster1, "", http.StatusForbidden},
		{http.MethodPatch, cluster + "/" + framework.Cluster1, `{}`, http.StatusForbidden},
		{http.MethodPost, cluster, `{}`, http.StatusForbidden},
		{http.MethodPost, api + "/graphql", `{}`, http.StatusForbidden},
		{http.MethodGet, consolePath + "../../../../api/v1/namespaces", "", http.StatusForbidden},
		{http.MethodGet, consolePath + "..%2F..%2F..%2F..%2Fapi%2Fv1%2Fnamespaces", "", http.StatusForbidden},
		{http.MethodGet, "//api/v1/namespaces", "", http.StatusForbidden},
	} {
		answer := send(t, client, c.method, base+c.path, c.body, nil)
		if answer.code != c.want || c.want == http.StatusForbidden && !strings.Contains(answer.status.Message, "clusteradm console does not forward") {
			t.Errorf("%s %s through the proxy = %d, want %d, and a message of the proxy if it refuses: %s", c.method, c.path, answer.code, c.want, answer.body)
		}
		if answer.header.Get("Cross-Origin-Resource-Policy") != "same-origin" {
			t.Errorf("%s %s through the proxy: headers = %v, want a Cross-Origin-Resource-Policy", c.method, c.path, answer.header)
		}
	}
}

// TestProxyKeepsTheIdentity checks that a browser cannot change the user of the kubeconfig, or of --as.
func TestProxyKeepsTheIdentity(t *testing.T) {
	f := framework.Shared(t)
	caller, other := administrator(t, f), viewer(t, f)
	for user, args := range map[string][]string{caller.Name: nil, other.Name: {"--as", other.Name}} {
		base := enter(t, openConsole(t, caller, args...).first)
		answer := send(t, client, http.MethodPost, base+"/apis/authentication.k8s.io/v1/selfsubjectreviews", `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`, http.Header{
			"Authorization": {"Bearer invalid"}, "Cookie": {"a=b"}, "Impersonate-User": {"mallory"}, "Impersonate-Group": {"developers"}, "X-Remote-User": {"mallory"},
		})
		var review authenticationv1.SelfSubjectReview
		if err := json.Unmarshal([]byte(answer.body), &review); err != nil || answer.code != http.StatusCreated || review.Status.UserInfo.Username != user {
			t.Errorf("SelfSubjectReview through clusteradm console %v = %d for %q, error %v, want 201 for %s: %s", args, answer.code, review.Status.UserInfo.Username, err, user, answer.body)
		}
	}
}

// TestProxyStreamsWatches checks that an event arrives while the watch continues, and that the watch ends with the proxy.
func TestProxyStreamsWatches(t *testing.T) {
	f := framework.Shared(t)
	opened := openConsole(t, administrator(t, f))
	name := framework.Unique("watched")
	address := enter(t, opened.first) + api + "/fleetresources?watch=true&" + url.Values{"fieldSelector": {"kind=ConfigMap,name=" + name}}.Encode()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	request := framework.Must(http.NewRequestWithContext(ctx, http.MethodGet, address, nil))(t)
	response := framework.Must(http.DefaultClient.Do(request))(t)
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("GET %s = %d, want 200", address, response.StatusCode)
	}
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	framework.Must(f.ManagedClient.CoreV1().ConfigMaps("default").Create(t.Context(), configMap, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		if err := f.ManagedClient.CoreV1().ConfigMaps("default").Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	events := bufio.NewReader(response.Body)
	for seen := false; !seen; {
		line, err := events.ReadString('\n')
		if err != nil {
			t.Fatalf("watch of ConfigMap %s: %v, want an event: %q", name, err, line)
		}
		seen = strings.Contains(line, `"ADDED"`) && strings.Contains(line, name)
	}
	if err := opened.stop(); err != nil {
		t.Errorf("clusteradm console with a watch after an interrupt: %v, want exit code 0", err)
	}
	var end error
	for end == nil {
		_, end = events.ReadString('\n')
	}
	if errors.Is(end, context.DeadlineExceeded) {
		t.Errorf("watch after clusteradm console has stopped: %v, want that it ends", end)
	}
}

// TestProxyWithoutHub stops the hub while a console runs, starts it again, and starts the server without the console.
func TestProxyWithoutHub(t *testing.T) {
	t.Parallel()
	f := framework.OwnFleet(t, localhub.FleetOptions{})
	caller := administrator(t, f)
	page := enter(t, openConsole(t, caller).first) + consolePath + "index.html"
	wait := func(what string, want int) {
		t.Helper()
		framework.Eventually(t, what, func(ctx context.Context) error {
			answer, err := trySend(ctx, client, http.MethodGet, page, "", nil)
			if err == nil && answer.code != want {
				err = fmt.Errorf("GET index.html = %d, want %d: %s", answer.code, want, answer.body)
			}
			return err
		})
	}
	wait("the console is served", http.StatusOK)
	if err := f.Hub.APIServer.Kill(); err != nil {
		t.Fatal(err)
	}
	answer := send(t, client, http.MethodGet, page, "", nil)
	if answer.code != http.StatusServiceUnavailable || answer.status.Reason != metav1.StatusReasonServiceUnavailable || !strings.Contains(answer.status.Message, "the hub does not answer") {
		t.Errorf("GET index.html without hub = %d, want a Status with 503: %s", answer.code, answer.body)
	}
	if out, message, code := caller.Clusteradm(t, "console", "--no-browser"); code != 1 || !strings.Contains(message, "getting the console") {
		t.Errorf("clusteradm console without hub exits with %d, want 1 and the reason:\n%s%s", code, out, message)
	}
	if err := f.Hub.APIServer.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait("the console is served again", http.StatusOK)

	f.Server.Args = append(f.Server.Args, "--console=false")
	if err := f.Server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait("a server without console answers", http.StatusNotFound)
	if out, message, code := caller.Clusteradm(t, "console", "--no-browser"); code != 1 || !strings.Contains(message, "--console=false") {
		t.Errorf("clusteradm console with a server without console exits with %d, want 1 and the flag:\n%s%s", code, out, message)
	}
	resources := framework.Must(f.HubClient.Discovery().ServerResourcesForGroupVersion(strings.TrimPrefix(api, "/apis/")))(t)
	for _, resource := range resources.APIResources {
		if resource.Name == "console" {
			t.Error("discovery of a server with --console=false has the resource console")
		}
	}
}
