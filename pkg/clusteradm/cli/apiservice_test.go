package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestWaitForVersions checks that the wait ends only when the hub forwards requests and lists the version, although another
// API server fails.
func TestWaitForVersions(t *testing.T) {
	const version = "work.open-cluster-management.io/v1"
	var requests, lists atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		group := func(name string) metav1.APIGroup {
			return metav1.APIGroup{Name: name, Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: name + "/v1", Version: "v1"}}}
		}
		var body any
		switch r.URL.Path {
		case "/apis":
			groups := metav1.APIGroupList{Groups: []metav1.APIGroup{group("other.example.com")}}
			if lists.Add(1) > 8 { // a request may be repeated
				groups.Groups = append(groups.Groups, group("work.open-cluster-management.io"))
			}
			body = groups
		case "/apis/" + version:
			if requests.Add(1) > 2 {
				body = metav1.APIResourceList{GroupVersion: version, APIResources: []metav1.APIResource{{Name: "manifestworks"}}}
			}
		case "/api":
			body = metav1.APIVersions{}
		}
		w.Header().Set("Content-Type", "application/json")
		if body == nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(body)
	}))
	defer server.Close()
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	err = (&Clients{Kube: kube}).WaitForVersions(t.Context(), []string{version})
	if err != nil || requests.Load() < 3 || lists.Load() < 9 {
		t.Errorf("WaitForVersions() = %v after %d requests and %d lists, want no error after a request succeeds and 9 lists", err, requests.Load(), lists.Load())
	}
}
