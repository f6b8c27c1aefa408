package clusteradm

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	accessv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/access/v1alpha1"
)

func resourceList(version string, resources ...metav1.APIResource) metav1.APIResourceList {
	return metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version, APIResources: resources}
}

func apiGroup(name string) metav1.APIGroup {
	version := metav1.GroupVersionForDiscovery{GroupVersion: name + "/v1", Version: "v1"}
	return metav1.APIGroup{Name: name, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version}
}

// discovery is what the hub serves.
var discovery = map[string]any{
	"/api": metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"}, Versions: []string{"v1"}},
	"/apis": metav1.APIGroupList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{apiGroup("apps"), apiGroup("stable.example.com")},
	},
	"/api/v1": resourceList("v1",
		metav1.APIResource{Name: "secrets", SingularName: "secret", Kind: "Secret", Namespaced: true},
		metav1.APIResource{Name: "pods", SingularName: "pod", Kind: "Pod", Namespaced: true, ShortNames: []string{"po"}},
		metav1.APIResource{Name: "pods/log", Kind: "Pod", Namespaced: true}),
	"/apis/apps/v1": resourceList("apps/v1",
		metav1.APIResource{Name: "deployments", SingularName: "deployment", Kind: "Deployment", Namespaced: true, ShortNames: []string{"deploy"}}),
	"/apis/stable.example.com/v1": resourceList("stable.example.com/v1",
		metav1.APIResource{Name: "widgets", SingularName: "widget", Kind: "Widget", Namespaced: true}),
}

// newQuestionedHub starts a hub that answers reviews by a function, and returns its kubeconfig.
func newQuestionedHub(t *testing.T, answer func(resource string, header http.Header, body []byte) any) string {
	t.Helper()
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			if discovery[r.URL.Path] == nil {
				w.WriteHeader(http.StatusNotFound)
			}
			_ = json.NewEncoder(w).Encode(discovery[r.URL.Path]) // the client notices a failure
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("body of %s: %v", r.URL, err)
		}
		_ = json.NewEncoder(w).Encode(answer(path.Base(r.URL.Path), r.Header, body))
	}))
	t.Cleanup(hub.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["hub"] = &clientcmdapi.Cluster{Server: hub.URL}
	config.AuthInfos["user"] = &clientcmdapi.AuthInfo{Token: "token"}
	config.Contexts["hub"] = &clientcmdapi.Context{Cluster: "hub", AuthInfo: "user"}
	config.CurrentContext = "hub"
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// A question about the wrong group would be denied, although the subject may do what the user means.
func TestQuestionsFindTheGroup(t *testing.T) {
	var asked *accessv1alpha1.ResourceAttributes
	kubeconfig := newQuestionedHub(t, func(_ string, _ http.Header, body []byte) any {
		var review accessv1alpha1.SelfFleetAccessReview
		if err := json.Unmarshal(body, &review); err != nil {
			t.Errorf("body: %v", err)
		}
		if review.Spec.ResourceAttributes != nil {
			asked = review.Spec.ResourceAttributes
		}
		review.Status = accessv1alpha1.FleetAccessReviewStatus{Allowed: 1, Clusters: []accessv1alpha1.ClusterAccess{{Cluster: "cluster1", Decision: accessv1alpha1.AccessAllowed}}}
		return &review
	})
	for _, test := range []struct {
		verb, word string
		want       string
		says       string
	}{
		{"get", "secrets", "secrets", ""},
		{"get", "secret", "secrets", "Note: the answer is about the resource secrets of the group \"\""},
		{"get", "po/log", "pods/log", "Note: the answer is about the resource pods of the group \"\""},
		{"patch", "deployments.apps", "deployments.apps", ""},
		{"patch", "deployments", "deployments.apps", "Note: the answer is about the resource deployments of the group \"apps\""},
		{"patch", "deploy", "deployments.apps", "Note: the answer is about the resource deployments of the group \"apps\""},
		{"patch", "Deployment", "deployments.apps", "Note: the answer is about the resource deployments of the group \"apps\""},
		{"get", "widgets", "widgets.stable.example.com", "Note: the answer is about the resource widgets of the group \"stable.example.com\""},
		{"get", "widgets.stable", "widgets.stable.example.com", "Note: the answer is about the resource widgets of the group \"stable.example.com\""},
		// The hub does not serve it, but Kubernetes does.
		{"create", "cronjobs", "cronjobs.batch", "Note: the answer is about the resource cronjobs of the group \"batch\""},
		{"bind", "clusterroles", "clusterroles.rbac.authorization.k8s.io", "Note: the answer is about the resource clusterroles of the group \"rbac.authorization.k8s.io\""},
		{"impersonate", "users", "users", ""},
		{"*", "*", "*", ""},
		{"*", "*.apps", "*.apps", ""},
		// It may be a resource of managed clusters.
		{"get", "podss", "podss", "Warning: the hub serves no resource podss of the group \"\""},
		{"get", "certificates.cert-manager.io", "certificates.cert-manager.io", "Warning: the hub serves no resource certificates of the group \"cert-manager.io\""},
		{"nosuch", "secrets", "secrets", "Warning: the verb \"nosuch\" is unusual"},
	} {
		for _, command := range []string{"can-i", "who-can"} {
			asked = nil
			got := runCommand(t, "auth", command, test.verb, test.word, "-n", "payments", "--kubeconfig="+kubeconfig)
			if asked == nil {
				t.Fatalf("clusteradm auth %s %s %s sent no question: %v", command, test.verb, test.word, got.err)
			}
			about := schema.GroupResource{Group: asked.Group, Resource: asked.Resource}.String()
			if asked.Subresource != "" {
				about += "/" + asked.Subresource
			}
			if about != test.want || asked.Verb != test.verb || asked.Namespace != "payments" {
				t.Errorf("clusteradm auth %s %s %s asks about %s %s in %q, want %s", command, test.verb, test.word, asked.Verb, about, asked.Namespace, test.want)
			}
			if command == "can-i" && test.says == "" && strings.Contains(got.errOut, ": ") {
				t.Errorf("clusteradm auth %s %s %s prints %q, want no note and no warning", command, test.verb, test.word, got.errOut)
			}
			got.shows(t, test.says)
		}
	}
}

// An answer about no cluster says whether the flags or the permissions of the caller are the reason.
func TestQuestionsAboutNoCluster(t *testing.T) {
	viewed := []string{"cluster1"}
	kubeconfig := newQuestionedHub(t, func(resource string, _ http.Header, body []byte) any {
		if resource == "fleetsubjectreviews" {
			return &accessv1alpha1.FleetSubjectReview{}
		}
		var review accessv1alpha1.FleetAccessReview
		if err := json.Unmarshal(body, &review); err != nil {
			t.Errorf("body: %v", err)
		}
		for _, name := range viewed {
			account := review.Spec.ServiceAccount
			if names := review.Spec.Clusters.Names; (len(names) == 0 || slices.Contains(names, name)) && len(review.Spec.Clusters.ClusterSets) == 0 && (account == nil || account.Cluster == name) {
				review.Status.Clusters = append(review.Status.Clusters, accessv1alpha1.ClusterAccess{Cluster: name, Decision: accessv1alpha1.AccessDenied})
				review.Status.Denied++
			}
		}
		return &review
	})
	run := func(args ...string) outcome { return runCommand(t, append(args, "--kubeconfig="+kubeconfig)...) }
	run("auth", "can-i", "get", "secrets", "--cluster=cluster9").refused(t, "no cluster that you may view matches --cluster=cluster9")
	run("auth", "can-i", "get", "secrets", "--clusterset=nosuch", "-o", "json").refused(t, "no cluster that you may view matches", "--clusterset=nosuch")
	run("auth", "explain", "user", "paul", "--cluster=cluster9").refused(t, "no cluster that you may view matches --cluster=cluster9")
	run("auth", "explain", "serviceaccount", "cluster9/ops/cleaner").refused(t, "no cluster that you may view matches --cluster=cluster9")
	run("auth", "who-can", "get", "secrets", "--cluster=cluster9").refused(t, "no cluster that you may view matches --cluster=cluster9")
	run("auth", "can-i", "get", "secrets").refused(t, "no selected cluster allows the request")
	viewed = nil
	for _, command := range []string{"can-i", "who-can"} {
		run("auth", command, "get", "secrets").refused(t, "you may view no cluster", "open-cluster-management:search:view-cluster")
		run("auth", command, "get", "secrets", "--cluster=cluster1").refused(t, "you may view no cluster")
	}
}

// The hub does not know the groups of a user.
func TestQuestionsWithoutGroups(t *testing.T) {
	decision := accessv1alpha1.AccessDenied
	kubeconfig := newQuestionedHub(t, func(_ string, _ http.Header, body []byte) any {
		var review accessv1alpha1.FleetAccessReview
		if err := json.Unmarshal(body, &review); err != nil {
			t.Errorf("body: %v", err)
		}
		review.Status.Clusters = []accessv1alpha1.ClusterAccess{{Cluster: "cluster1", Decision: decision}}
		switch {
		case review.Spec.ResourceAttributes == nil:
		case decision == accessv1alpha1.AccessAllowed:
			review.Status.Allowed = 1
		default:
			review.Status.Denied = 1
		}
		return &review
	})
	for _, test := range []struct {
		args string
		want bool
	}{
		{"can-i get secrets --subject=paul", true},
		{"can-i get secrets --subject=paul --group=payments", false},
		{"can-i get secrets --group=payments", false},
		{"can-i get secrets --subject=system:serviceaccount:ops:cleaner", false},
		{"can-i get secrets", false},
		{"explain user paul", true},
		{"explain user paul --group=payments", false},
		{"explain group payments", false},
	} {
		got := runCommand(t, append(append([]string{"auth"}, strings.Fields(test.args)...), "--kubeconfig="+kubeconfig)...)
		if noted := strings.Contains(got.errOut, "the hub does not know the groups of paul"); noted != test.want {
			t.Errorf("clusteradm auth %s: note about groups = %t, want %t:\n%s", test.args, noted, test.want, got.errOut)
		}
	}
	decision = accessv1alpha1.AccessAllowed
	if got := runCommand(t, "auth", "can-i", "get", "secrets", "-n=payments", "--subject=paul", "--kubeconfig="+kubeconfig).done(t); strings.Contains(got.errOut, "Note") {
		t.Errorf("clusteradm auth can-i of an allowed user prints %q, want no note", got.errOut)
	}
}
