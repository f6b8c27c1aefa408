package conformance

import (
	"errors"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// TestServerOwned checks that clients can read kinds that only the server writes, and that no
// client can write them, not even an administrator.
func TestServerOwned(t *testing.T) {
	t.Parallel()
	if len(serverOwned()) == 0 {
		t.Fatal("kinds that only the server writes = none, want at least one")
	}
	for _, k := range serverOwned() {
		t.Run(k.arg(), func(t *testing.T) {
			t.Parallel()
			if _, err := readYAML(filepath.Join(localhub.Root(), "artifacts", "example", k.Singular+".yaml")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("example of a kind that only the server creates: error = %v, want none to exist", err)
			}
			client := shared.dynamic.Resource(k.gvr())
			list, err := client.List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			watcher, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
			if err != nil {
				t.Fatal(err)
			}
			watcher.Stop()
			if _, err := client.Get(t.Context(), "absent", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("get of an absent object: error = %v, want 404", err)
			}
			for _, shortName := range append(k.ShortNames, k.Singular) {
				if _, stderr, err := shared.kubectl(t, "", "get", shortName+"."+k.version.Group, "--output=wide"); err != nil {
					t.Errorf("kubectl get %s: %v: %s", shortName, err, stderr)
				}
			}

			p := &place{kind: k, hub: shared}
			admin := &caller{config: shared.admin}
			for _, e := range p.endpoints("absent") {
				if e.method == http.MethodGet || isSubresource(k, e) {
					continue
				}
				if code, body := admin.send(t, e); code != http.StatusMethodNotAllowed {
					t.Errorf("%s: %d, want 405: %s", e.verb, code, body)
				}
			}
			e := endpoint{"update status", http.MethodPut, p.path("") + "/absent/status", "application/json"}
			if code, body := admin.send(t, e); code != http.StatusNotFound {
				t.Errorf("%s: %d, want 404: %s", e.verb, code, body)
			}
		})
	}
}

// isSubresource reports whether an endpoint is a subresource of an object. Clients may be allowed
// to write a subresource.
func isSubresource(k kind, e endpoint) bool {
	path, _, _ := strings.Cut(e.path, "?")
	return strings.Count(strings.TrimPrefix(path, k.path("")), "/") > 1
}

// TestServerOwnedForbidden checks that a caller without permission cannot read these kinds.
func TestServerOwnedForbidden(t *testing.T) {
	t.Parallel()
	for _, k := range serverOwned() {
		p := &place{kind: k, hub: shared}
		for _, c := range callers(t) {
			t.Run(k.arg()+" "+c.name, func(t *testing.T) {
				t.Parallel()
				for _, e := range p.endpoints("absent") {
					if code, body := c.send(t, e); code != http.StatusForbidden && (code != http.StatusUnauthorized || c.user != "system:anonymous") {
						t.Errorf("%s: %d, want 403: %s", e.verb, code, body)
					}
				}
			})
		}
	}
}
