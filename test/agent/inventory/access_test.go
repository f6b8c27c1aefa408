package inventory_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	"open-cluster-management.io/hub-apiserver/pkg/agent/inventory"
	reports "open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/test/accesstest"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// TestAccess checks that the RBAC of a cluster reaches the index of the hub.
func TestAccess(t *testing.T) {
	framework.UseShared(t)
	m := framework.Must(sharedManaged())(t)
	for name, engine := range accesstest.Engines {
		t.Run(name, func(t *testing.T) {
			for _, test := range []struct {
				name string
				run  func(*testing.T, *managed, *accesstest.Hub)
			}{
				{"Changes", testAccessChanges},
				{"AnswersOfTheCluster", testAccessAnswers},
				{"AgentRestart", testAccessAgentRestart},
				{"HubRestart", testAccessHubRestart},
				{"NotComplete", testAccessNotComplete},
				{"LargeRole", testAccessLargeRole},
				{"PublicCollector", testAccessPublicCollector},
				{"Hostile", testAccessHostile},
			} {
				t.Run(test.name, func(t *testing.T) { test.run(t, m, accesstest.NewHub(t, engine(t))) })
			}
		})
	}
	t.Run("NotAnnounced", func(t *testing.T) { testAccessNotAnnounced(t, m) })
}

// bind creates a RoleBinding that allows a user to list Secrets.
func (m *managed) bind(t *testing.T, name, user string) {
	t.Helper()
	bindings := m.kube.RbacV1().RoleBindings(metav1.NamespaceDefault)
	if _, err := bindings.Create(t.Context(), accesstest.Binding(name, user), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = bindings.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
	})
}

func (m *managed) unbind(t *testing.T, name string) {
	t.Helper()
	if err := m.kube.RbacV1().RoleBindings(metav1.NamespaceDefault).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func testAccessChanges(t *testing.T, m *managed, hub *accesstest.Hub) {
	hub.Report(t, m.config, inventory.Configuration{}, inventory.DefaultTiming)
	hub.Await(t, accesstest.Cluster, "alice", access.Denied, "")
	m.bind(t, "changes", "alice")
	hub.Await(t, accesstest.Cluster, "alice", access.Allowed, "")
	unbound := time.Now()
	m.unbind(t, "changes")
	hub.Await(t, accesstest.Cluster, "alice", access.Denied, "")
	framework.Soon(t, "the revocation is reported", unbound, framework.Prompt)
}

// testAccessAnswers compares answers of the index with SubjectAccessReviews of the cluster.
func testAccessAnswers(t *testing.T, m *managed, hub *accesstest.Hub) {
	hub.Report(t, m.config, inventory.Configuration{}, quick())
	hub.Await(t, accesstest.Cluster, "alice", access.Denied, "")
	for _, user := range []string{"system:kube-controller-manager", "system:kube-scheduler", "system:serviceaccount:kube-system:namespace-controller", "nobody"} {
		for _, attributes := range []authorizationv1.ResourceAttributes{
			{Verb: "list", Resource: "secrets", Namespace: "default"}, {Verb: "delete", Resource: "pods", Namespace: "default"},
			{Verb: "create", Resource: "bindings", Namespace: "default"}, {Verb: "get", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-system", Name: "kube-scheduler"},
			{Verb: "delete", Group: "apps", Resource: "deployments", Namespace: "kube-system"},
		} {
			review, err := m.kube.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &attributes},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want := access.Denied
			if review.Status.Allowed {
				want = access.Allowed
			}
			asked := access.Attributes{
				Verb: attributes.Verb, Namespace: attributes.Namespace, Group: attributes.Group, Resource: attributes.Resource, Name: attributes.Name,
			}
			if got := hub.Ask(accesstest.Cluster, access.Subject{User: user}, asked); got.Decision != want {
				t.Errorf("decision about %s and %+v = %s (%s), want %s", user, attributes, got.Decision, got.Reason, want)
			}
		}
	}
}

func testAccessAgentRestart(t *testing.T, m *managed, hub *accesstest.Hub) {
	m.bind(t, "restart", "alice")
	stop := hub.Report(t, m.config, inventory.Configuration{}, quick())
	hub.Await(t, accesstest.Cluster, "alice", access.Allowed, "")
	stop()
	m.unbind(t, "restart")
	m.bind(t, "restart-2", "bob")
	hub.Report(t, m.config, inventory.Configuration{}, quick())
	hub.Await(t, accesstest.Cluster, "bob", access.Allowed, "")
	hub.Await(t, accesstest.Cluster, "alice", access.Denied, "")
}

func testAccessHubRestart(t *testing.T, m *managed, hub *accesstest.Hub) {
	m.bind(t, "hub-restart", "alice")
	stop := hub.Report(t, m.config, inventory.Configuration{}, quick())
	hub.Await(t, accesstest.Cluster, "alice", access.Allowed, "")
	stop()
	hub.Stop(t)
	hub.Start(t)
	// The cluster does not report, so the hub must have kept its RBAC.
	hub.Await(t, accesstest.Cluster, "alice", access.Allowed, "")
	hub.Await(t, accesstest.Cluster, "bob", access.Denied, "")
	hub.Report(t, m.config, inventory.Configuration{}, quick())
	m.unbind(t, "hub-restart")
	hub.Await(t, accesstest.Cluster, "alice", access.Denied, "")
}

// testAccessNotComplete checks that a cluster is unknown if its agent does not report all roles and bindings.
func testAccessNotComplete(t *testing.T, m *managed, hub *accesstest.Hub) {
	m.bind(t, "not-complete", "alice")
	namespaces := inventory.Configuration{}
	namespaces.Namespaces.Exclude = []string{"kube-*"}
	for _, configuration := range []inventory.Configuration{{Exclude: []string{"rbac.authorization.k8s.io/rolebindings"}}, {Include: []string{"pods"}}, namespaces} {
		stop := hub.Report(t, m.config, configuration, quick())
		hub.Await(t, accesstest.Cluster, "alice", access.Unknown, "the configuration of the agent")
		stop()
	}
	// The agent may list everything except RoleBindings.
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "limited-"}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"list", "watch"}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles", "clusterroles", "clusterrolebindings"}},
		{Verbs: []string{"list", "watch"}, APIGroups: []string{""}, Resources: []string{"namespaces"}},
	}}
	role, err := m.kube.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	user := role.Name
	if _, err := m.kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	limited := rest.CopyConfig(m.config)
	limited.Impersonate.UserName = user
	limited.Impersonate.Groups = []string{"system:authenticated"}
	stop := hub.Report(t, limited, inventory.Configuration{}, quick())
	hub.Await(t, accesstest.Cluster, "alice", access.Unknown, "lacks permission to list rolebindings")
	stop()
	// The agent may list everything, but review no access.
	role.Rules[0].Resources = append(role.Rules[0].Resources, "rolebindings")
	if _, err := m.kube.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	stop = hub.Report(t, limited, inventory.Configuration{}, quick())
	hub.Await(t, accesstest.Cluster, "alice", access.Unknown, "lacks permission to create subjectaccessreviews")
	stop()
	hub.Report(t, m.config, inventory.Configuration{}, quick())
	hub.Await(t, accesstest.Cluster, "alice", access.Allowed, "")
}

// testAccessLargeRole checks that a role that is too large makes the cluster unknown, but not other reports.
func testAccessLargeRole(t *testing.T, m *managed, hub *accesstest.Hub) {
	hub.Report(t, m.config, inventory.Configuration{}, quick())
	hub.Await(t, accesstest.Cluster, "alice", access.Denied, "")
	var names []string
	for i := range reports.MaxAccessBytes / 10 {
		names = append(names, fmt.Sprint("name-", 10000+i))
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "large-"}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: names},
	}}
	role, err := m.kube.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	hub.Await(t, accesstest.Cluster, "alice", access.Unknown, "the content of 1 roles or bindings exceeds")
	if err := m.kube.RbacV1().ClusterRoles().Delete(t.Context(), role.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	hub.Await(t, accesstest.Cluster, "alice", access.Denied, "")
}

// post sends a report of a cluster as another collector.
func post(t *testing.T, hub *accesstest.Hub, cluster string, report reports.Sync) *reports.Response {
	t.Helper()
	body, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Timeout: await.Patience}
	answer, err := client.Post(hub.Config().Host+"/namespaces/"+cluster+"/inventories/"+cluster+"/sync", "application/json", strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	response := &reports.Response{}
	if err := json.NewDecoder(answer.Body).Decode(response); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("response to a report of %s = %d, %v, want 200", cluster, answer.StatusCode, err)
	}
	return response
}

func rbacResource(uid, kind, name string, more map[string]string) reports.Resource {
	r := reports.Resource{UID: uid, Kind: kind, Properties: map[string]json.RawMessage{
		"name": json.RawMessage(fmt.Sprintf("%q", name)), "apigroup": json.RawMessage(`"rbac.authorization.k8s.io"`),
	}}
	for name, text := range more {
		quoted, _ := json.Marshal(text)
		r.Properties[name] = quoted
	}
	return r
}

// testAccessPublicCollector replaces the agent by a public collector, which reports no content.
func testAccessPublicCollector(t *testing.T, m *managed, hub *accesstest.Hub) {
	stop := hub.Report(t, m.config, inventory.Configuration{}, quick())
	hub.Await(t, accesstest.Cluster, "alice", access.Denied, "")
	stop()
	post(t, hub, accesstest.Cluster, reports.Sync{ClearAll: true, AddResources: []reports.Resource{
		rbacResource(accesstest.Cluster+"/r", "ClusterRole", "view", nil), rbacResource(accesstest.Cluster+"/b", "ClusterRoleBinding", "view", nil),
	}})
	hub.Await(t, accesstest.Cluster, "alice", access.Unknown, "does not report its roles and bindings")
}

// testAccessHostile checks that a cluster can only make itself unknown.
func testAccessHostile(t *testing.T, m *managed, hub *accesstest.Hub) {
	hub.Report(t, m.config, inventory.Configuration{}, quick())
	hub.Await(t, accesstest.Cluster, "mallory", access.Denied, "")
	binding := func(cluster string) reports.Resource {
		return rbacResource(cluster+"/mallory", "ClusterRoleBinding", "mallory", map[string]string{
			reports.RoleRef:  `{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"}`,
			reports.Subjects: `[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"mallory"}]`,
		})
	}
	statement := func(cluster string, objects int) reports.Resource {
		text, _ := json.Marshal(reports.AccessReport{Complete: true, Objects: objects})
		return rbacResource(cluster+"/"+reports.AccessReportID, reports.AccessReportKind, "access-report", map[string]string{reports.Access: string(text)})
	}
	response := post(t, hub, "c2", reports.Sync{AddResources: []reports.Resource{
		binding(accesstest.Cluster), statement(accesstest.Cluster, 1), binding("local-cluster"), statement("local-cluster", 1),
		binding("c2"), statement("c2", 1),
	}})
	if len(response.AddErrors) != 4 {
		t.Errorf("errors = %v, want those of the 4 resources of other clusters", response.AddErrors)
	}
	// The role that is bound does not exist on c2.
	hub.Await(t, "c2", "mallory", access.Denied, "")
	shape := rbacResource("c2/shape", "ClusterRole", "cluster-admin", nil)
	shape.Properties[reports.Rules] = json.RawMessage(`[{"verbs":["*"]}]`)
	large := rbacResource("c2/large", "ClusterRole", "large", map[string]string{reports.Rules: "[" + strings.Repeat(" ", reports.MaxAccessBytes) + "]"})
	if response = post(t, hub, "c2", reports.Sync{AddResources: []reports.Resource{shape, large, statement("c2", 3)}}); len(response.AddErrors) != 2 {
		t.Errorf("errors = %v, want those of the 2 roles", response.AddErrors)
	}
	hub.Await(t, "c2", "mallory", access.Unknown, "the cluster reports 3")
	for cluster, want := range map[string]access.Decision{accesstest.Cluster: access.Denied, "local-cluster": access.Unknown} {
		if got := hub.ListSecrets(cluster, "mallory"); got.Decision != want {
			t.Errorf("decision about mallory on %s = %s, want %s", cluster, got.Decision, want)
		}
	}
}

// testAccessNotAnnounced checks that a hub of an earlier release receives no content of RBAC objects.
func testAccessNotAnnounced(t *testing.T, m *managed) {
	hub := newEndpoint(t, "c1")
	m.run(t, "c1", hub, inventory.Configuration{})
	await.Eventually(t, "the ClusterRole view is reported", func() error {
		if uid, _ := hub.find("ClusterRole", "view"); uid == "" {
			return errors.New("it is not reported")
		}
		return nil
	})
	hub.mu.Lock()
	defer hub.mu.Unlock()
	for _, name := range []string{reports.Rules, reports.RoleRef, reports.Subjects, reports.Access, reports.AccessReportKind} {
		if strings.Contains(hub.wire.String(), name) {
			t.Errorf("the reports contain %s, want none", name)
		}
	}
}

// TestAccessOtherAuthorizers checks clusters that ask other authorizers in addition to RBAC.
func TestAccessOtherAuthorizers(t *testing.T) {
	policy := filepath.Join(t.TempDir(), "policy.jsonl")
	// Only carol is allowed something, so neither the rules nor the permissions of other users show that there is a policy.
	if err := os.WriteFile(policy, []byte(`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"carol","namespace":"*","resource":"secrets","apiGroup":"*","readonly":true}}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster := framework.OwnCluster(t, localhub.ClusterOptions{Name: "managed"})
	args := cluster.APIServer.Args
	for _, test := range []struct {
		name string
		args []string
		// allowed is the user who is allowed to list Secrets by the other authorizer only.
		allowed string
	}{
		{"Webhook", []string{"--authorization-mode=Webhook", "--authorization-webhook-version=v1", "--authorization-webhook-config-file=" + webhookFile(t)}, ""},
		{"ABAC", []string{"--authorization-mode=ABAC", "--authorization-policy-file=" + policy}, "carol"},
		{"AlwaysAllow", []string{"--authorization-mode=AlwaysAllow"}, "anybody"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cluster.APIServer.Args = slices.Concat(args, test.args)
			if err := cluster.APIServer.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			m := &managed{config: cluster.AdminConfig(), kube: framework.Must(kubernetes.NewForConfig(cluster.AdminConfig()))(t)}
			if test.allowed != "" {
				review := framework.Must(m.kube.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
					Spec: authorizationv1.SubjectAccessReviewSpec{User: test.allowed, ResourceAttributes: &authorizationv1.ResourceAttributes{
						Verb: "list", Resource: "secrets", Namespace: metav1.NamespaceDefault,
					}},
				}, metav1.CreateOptions{}))(t)
				if !review.Status.Allowed {
					t.Fatalf("review of %s = %+v, want allowed by another authorizer than RBAC", test.allowed, review.Status)
				}
			}
			hub := accesstest.NewHub(t, accesstest.Engines["embedded"](t))
			hub.Report(t, m.config, inventory.Configuration{}, quick())
			hub.Await(t, accesstest.Cluster, "alice", access.Unknown, "another authorizer")
			m.bind(t, "others", "alice")
			hub.Await(t, accesstest.Cluster, "alice", access.Allowed, "")
			hub.Await(t, accesstest.Cluster, "bob", access.Unknown, "another authorizer")
		})
	}
}

// webhookFile returns a file that configures a webhook authorizer without opinion.
func webhookFile(t *testing.T) string {
	t.Helper()
	webhook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := &authorizationv1.SubjectAccessReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(webhook.Close)
	config, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"webhook": {Server: webhook.URL}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"cluster": {}},
		Contexts:       map[string]*clientcmdapi.Context{"webhook": {Cluster: "webhook", AuthInfo: "cluster"}},
		CurrentContext: "webhook",
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "webhook.kubeconfig")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
