package console

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/test/framework"
)

// hub returns a function that sends a request to the hub as a caller.
func hub(t *testing.T, caller *framework.Caller) func(method, path string, header http.Header) reply {
	t.Helper()
	authenticated := framework.Must(rest.HTTPClientFor(caller.Config))(t)
	return func(method, path string, header http.Header) reply {
		t.Helper()
		return send(t, authenticated, method, caller.Config.Host+path, "", header)
	}
}

// TestServing reads files of the console through the hub.
func TestServing(t *testing.T) {
	f := framework.Shared(t)
	get := hub(t, administrator(t, f))
	page := get(http.MethodGet, consolePath+"index.html", nil)
	if page.code != http.StatusOK {
		t.Fatalf("GET index.html = %d, want 200: %s", page.code, page.body)
	}
	for name, want := range map[string]string{
		"Content-Type":                 "text/html; charset=utf-8",
		"X-Content-Type-Options":       "nosniff",
		"Referrer-Policy":              "no-referrer",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
	} {
		if got := page.header.Get(name); got != want {
			t.Errorf("header %s through the hub = %q, want %q", name, got, want)
		}
	}
	if got := strings.Join(page.header.Values("Cache-Control"), ", "); !strings.Contains(got, "no-cache") || strings.Contains(got, "max-age") {
		t.Errorf("header Cache-Control through the hub = %q, want no-cache", got)
	}
	for _, part := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} {
		if got := page.header.Get("Content-Security-Policy"); !strings.Contains(got, part) {
			t.Errorf("Content-Security-Policy through the hub = %q, want one that contains %q", got, part)
		}
	}
	etag := page.header.Get("ETag")
	if again := get(http.MethodGet, consolePath+"index.html", http.Header{"If-None-Match": {etag}}); again.code != http.StatusNotModified || again.body != "" {
		t.Errorf("GET index.html with If-None-Match %s = %d with %d bytes, want 304", etag, again.code, len(again.body))
	}
	if head := get(http.MethodHead, consolePath+"index.html", nil); head.code != http.StatusOK || head.body != "" {
		t.Errorf("HEAD index.html = %d with %d bytes, want 200", head.code, len(head.body))
	}
	if missing := get(http.MethodGet, consolePath+"missing.js", nil); missing.code != http.StatusNotFound || missing.status.Reason != metav1.StatusReasonNotFound {
		t.Errorf("GET missing.js = %d, want a Status with 404: %s", missing.code, missing.body)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
		if answer := get(method, consolePath+"index.html", nil); answer.code != http.StatusMethodNotAllowed {
			t.Errorf("%s index.html = %d, want 405: %s", method, answer.code, answer.body)
		}
	}
}

// TestServingNeedsPermission checks that RBAC allows and denies the console, and which roles contain it.
func TestServingNeedsPermission(t *testing.T) {
	f := framework.Shared(t)
	caller := framework.NewCaller(t, f.Hub, framework.Unique("stranger"))
	get := hub(t, caller)
	if answer := get(http.MethodGet, consolePath+"index.html", nil); answer.code != http.StatusForbidden || answer.status.Reason != metav1.StatusReasonForbidden {
		t.Errorf("GET index.html without permission = %d, want a Status with 403: %s", answer.code, answer.body)
	}
	out, message, code := caller.Clusteradm(t, "console", "--no-browser")
	if code != 1 || !strings.Contains(message, "forbidden") || !strings.Contains(message, consoleRole) {
		t.Errorf("clusteradm console without permission exits with %d, want 1 and the ClusterRole %s:\n%s%s", code, consoleRole, out, message)
	}
	bindEverywhere(t, caller, consoleRole)
	caller.AwaitAllowed(t, "", getConsole)
	if answer := get(http.MethodGet, consolePath+"index.html", nil); answer.code != http.StatusOK {
		t.Errorf("GET index.html with the role = %d, want 200: %s", answer.code, answer.body)
	}
	for _, role := range []string{"view", "edit", "admin"} {
		aggregated := framework.NewCaller(t, f.Hub, framework.Unique(role))
		bindEverywhere(t, aggregated, role)
		aggregated.AwaitAllowed(t, "", getConsole)
	}
}

// TestDiscovery checks that the hub lists the resource.
func TestDiscovery(t *testing.T) {
	f := framework.Shared(t)
	list := framework.Must(f.HubClient.Discovery().ServerResourcesForGroupVersion(strings.TrimPrefix(api, "/apis/")))(t)
	for _, resource := range list.APIResources {
		if resource.Name == "console" {
			if resource.Kind != "Console" || resource.Namespaced || strings.Join(resource.Verbs, ",") != "get" {
				t.Errorf("resource console = %s, want kind Console, not namespaced, verb get", framework.ToJSON(resource))
			}
			return
		}
	}
	t.Error("discovery has no resource console")
}
