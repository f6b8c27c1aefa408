package search

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// TestSearchOnAHubWithAnotherAuthorizer checks searches on a hub with a webhook authorizer in addition to RBAC. The
// server detects the webhook, and callers find the resources that either authorizer allows.
func TestSearchOnAHubWithAnotherAuthorizer(t *testing.T) {
	t.Parallel()
	decides := newWebhook(t, "allowed-by-webhook")
	f := ownFleet(t, localhub.FleetOptions{HubArgs: []string{
		"--authorization-mode=Webhook", "--authorization-webhook-version=v1", "--authorization-webhook-config-file=" + decides.config,
	}})
	cluster, hub := f.reporter(t), f.hubReporter(t)
	resources, edges := cluster.shop()
	cluster.has(t, resources, edges...)
	decides.cluster.Store(&cluster.name)
	var own []inventory.Resource
	for _, namespace := range []string{"by-webhook", "by-rbac", "by-nobody"} {
		f.makeNamespace(t, namespace)
		for _, kind := range []string{"Pod", "ConfigMap", "Secret"} {
			own = append(own, hub.resource(kind, namespace, "one", nil), hub.resource(kind, namespace, "two", nil))
		}
	}
	hub.changes(t, inventory.Sync{AddResources: own})

	both, rbacOnly := newCaller(t, f.Hub, "allowed-by-webhook"), f.searcher(t, "allowed-by-rbac")
	for _, c := range []*caller{both, rbacOnly} {
		c.May(t, "by-rbac", listing("", []string{"configmaps"}, "two"), listing("", []string{"secrets"}))
	}
	ofRBAC := []string{"configmap.by-rbac.two", "secret.by-rbac.one", "secret.by-rbac.two"}
	ofHub := append([]string{"pod.by-webhook.one", "pod.by-webhook.two"}, ofRBAC...)
	finds(t, rbacOnly.OCM, "", ofRBAC...)
	finds(t, both.OCM, "cluster:"+hub.name, ofHub...)
	finds(t, both.OCM, "kind:Pod,Secret cluster:"+cluster.name, "pod.payments.web-1-a", "pod.payments.web-1-b", "pod.default.job-x", "pod.default.bare")
	values := framework.Must(completed(t.Context(), both.OCM, searchv1alpha1.SearchCompletionSpec{Property: "namespace"}))(t).Values
	if got, want := counted(values), "by-rbac:3 by-webhook:2 default:3 payments:4"; got != want {
		t.Errorf("namespaces = %s, want %s", got, want)
	}
}

// webhook is an authorizer of a hub. It allows one user to search, to list Pods in one namespace and to view one
// cluster, and has no opinion otherwise.
type webhook struct {
	// config is the hub's configuration file for the webhook.
	config  string
	user    string
	cluster atomic.Pointer[string]
}

func newWebhook(t *testing.T, user string) *webhook {
	t.Helper()
	w := &webhook{user: user}
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	w.config = fileOf(t, "webhook.kubeconfig", string(framework.Must(clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"webhook": {Server: server.URL}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"hub": {}},
		Contexts:       map[string]*clientcmdapi.Context{"webhook": {Cluster: "webhook", AuthInfo: "hub"}},
		CurrentContext: "webhook",
	}))(t)))
	return w
}

// ServeHTTP answers a SubjectAccessReview of the hub.
func (w *webhook) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	review := &authorizationv1.SubjectAccessReview{}
	if err := json.NewDecoder(r.Body).Decode(review); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: review.Spec.User == w.user && w.allows(review.Spec.ResourceAttributes)}
	rw.Header().Set("Content-Type", "application/json")
	// An error means that the hub has closed the connection.
	_ = json.NewEncoder(rw).Encode(review)
}

func (w *webhook) allows(a *authorizationv1.ResourceAttributes) bool {
	if a == nil {
		return false
	}
	cluster := w.cluster.Load()
	switch {
	case a.Group == searchv1alpha1.GroupName:
		return strings.HasPrefix(a.Resource, "search") && a.Verb == "create"
	case a.Resource == "pods":
		return a.Group == "" && a.Verb == "list" && a.Namespace == "by-webhook"
	case a.Resource == "managedclusterviews":
		return a.Group == "view.open-cluster-management.io" && a.Verb == "create" && cluster != nil && a.Namespace == *cluster
	}
	return false
}
