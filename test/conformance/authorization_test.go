package conformance

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// endpoint is a request that the API of a kind supports.
type endpoint struct {
	verb, method, path, contentType string
}

// endpoints returns all requests for the collection, an object and its subresources.
func (p *place) endpoints(name string) []endpoint {
	collection := p.path(p.namespace)
	object := collection + "/" + name
	out := []endpoint{
		{"list", http.MethodGet, collection, ""},
		{"watch", http.MethodGet, collection + "?watch=true", ""},
		{"create", http.MethodPost, collection, "application/json"},
		{"deletecollection", http.MethodDelete, collection, ""},
		{"get", http.MethodGet, object, ""},
		{"update", http.MethodPut, object, "application/json"},
		{"patch", http.MethodPatch, object, "application/merge-patch+json"},
		{"apply", http.MethodPatch, object + "?fieldManager=test", "application/apply-patch+yaml"},
		{"delete", http.MethodDelete, object, ""},
	}
	if !p.ClusterScoped {
		out = append(out,
			endpoint{"list all", http.MethodGet, p.path(""), ""},
			endpoint{"watch all", http.MethodGet, p.path("") + "?watch=true", ""})
	}
	for _, subresource := range p.subresources() {
		out = append(out,
			endpoint{"get " + subresource, http.MethodGet, object + "/" + subresource, ""},
			endpoint{"update " + subresource, http.MethodPut, object + "/" + subresource, "application/json"},
			endpoint{"patch " + subresource, http.MethodPatch, object + "/" + subresource, "application/merge-patch+json"})
	}
	return out
}

// caller sends requests with one kind of credentials.
type caller struct {
	name string
	// user is the user name that the server must report when it denies a request.
	user   string
	config *rest.Config
	header http.Header
}

// callers returns the callers without any permission.
func callers(t *testing.T) []caller {
	t.Helper()
	ordinary, err := shared.Hub.UserConfig("ordinary", "ordinary-group")
	if err != nil {
		t.Fatal(err)
	}
	direct, err := shared.Server.UserConfig("ordinary", "ordinary-group")
	if err != nil {
		t.Fatal(err)
	}
	anonymous, err := shared.Server.AnonymousConfig()
	if err != nil {
		t.Fatal(err)
	}
	forged := http.Header{"X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}, "X-Remote-Uid": {"1"}}
	impersonated := http.Header{"Impersonate-User": {"admin"}, "Impersonate-Group": {"system:masters"}}
	return []caller{
		{name: "without RBAC", user: "ordinary", config: ordinary},
		{name: "anonymous", user: "system:anonymous", config: shared.Hub.AnonymousConfig()},
		{name: "without RBAC, past the hub", user: "ordinary", config: direct},
		{name: "anonymous, past the hub", user: "system:anonymous", config: anonymous},
		{name: "forging the front proxy through the hub", user: "ordinary", config: ordinary, header: forged},
		{name: "forging the front proxy", user: "system:anonymous", config: anonymous, header: forged},
		{name: "forging the front proxy with a client certificate", user: "ordinary", config: direct, header: forged},
		{name: "impersonating, past the hub", user: "ordinary", config: direct, header: impersonated},
	}
}

// send sends a request and returns the status code and the body.
func (c *caller) send(t *testing.T, e endpoint) (int, string) {
	t.Helper()
	client, err := rest.HTTPClientFor(c.config)
	if err != nil {
		t.Fatal(err)
	}
	var body io.Reader
	if e.contentType != "" {
		body = strings.NewReader("{}")
	}
	request, err := http.NewRequestWithContext(t.Context(), e.method, c.config.Host+e.path, body)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range c.header {
		request.Header[name] = values
	}
	if e.contentType != "" {
		request.Header.Set("Content-Type", e.contentType)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

func TestForbidden(t *testing.T) {
	who := callers(t)
	forEach(t, func(t *testing.T, p *place) {
		object := p.create(t)
		for _, c := range who {
			t.Run(c.name, func(t *testing.T) {
				for _, e := range p.endpoints(object.GetName()) {
					code, body := c.send(t, e)
					if code == http.StatusUnauthorized && c.user == "system:anonymous" {
						continue
					}
					var status metav1.Status
					if err := json.Unmarshal([]byte(body), &status); err != nil {
						t.Errorf("%s: %d, want 403 and a Status: %s", e.verb, code, body)
						continue
					}
					if code != http.StatusForbidden || !strings.Contains(status.Message, fmt.Sprintf("User %q", c.user)) {
						t.Errorf("%s: %d, want 403 for %s: %s", e.verb, code, c.user, status.Message)
					}
				}
			})
		}
		after := p.get(t, object.GetName())
		if after.GetDeletionTimestamp() != nil || after.GetGeneration() != object.GetGeneration() {
			t.Errorf("metadata after denied requests = %v, want no change", after.Object["metadata"])
		}
	})
}

// TestAllowed checks that the same requests reach the object if the caller has permission. This
// shows that the denials in TestForbidden are due to missing permission.
func TestAllowed(t *testing.T) {
	config, err := shared.Server.UserConfig("admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	forEach(t, func(t *testing.T, p *place) {
		name := p.create(t).GetName()
		for _, c := range []caller{{config: shared.admin}, {config: config}} {
			for _, e := range p.endpoints(name) {
				if e.method != http.MethodGet || strings.Contains(e.path, "watch") {
					continue
				}
				// Some subresources do not support get. A 405 shows that the request passed authorization.
				if code, body := c.send(t, e); code != http.StatusOK && code != http.StatusMethodNotAllowed {
					t.Errorf("%s at %s: %d, want 200 or 405: %s", e.verb, c.config.Host, code, body)
				}
			}
		}
	})
}
