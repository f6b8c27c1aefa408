package registration

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// mayDo grants rules to a user or a group.
func (h *awsHub) mayDo(t *testing.T, kind, name string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	framework.CreateClusterRole(t, h.HubClient, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules})
	bindings := h.HubClient.RbacV1().ClusterRoleBindings()
	framework.Must(bindings.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}},
	}, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		if err := bindings.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

var updateClusters = []rbacv1.PolicyRule{{
	APIGroups: []string{"cluster.open-cluster-management.io"}, Resources: []string{"managedclusters", "managedclusters/status"},
	Verbs: []string{"get", "list", "create", "update", "patch"},
}, {
	APIGroups: []string{"cluster.open-cluster-management.io"}, Resources: []string{"managedclustersets/join"}, Verbs: []string{"create"},
}}

func mayAccept(clusters ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{"register.open-cluster-management.io"}, Resources: []string{"managedclusters/accept"}, ResourceNames: clusters, Verbs: []string{"update"},
	}
}

// decisions are all the writes of a ManagedCluster that decide about it.
func (h *awsHub) decisions(t *testing.T, name string, accepted bool) []attempt {
	t.Helper()
	path, mc := clustersPath+"/"+name, h.cluster(t, name)
	mc.Spec.HubAcceptsClient = accepted
	mc.APIVersion, mc.Kind, mc.ManagedFields, mc.ResourceVersion = clusterv1.SchemeGroupVersion.String(), "ManagedCluster", nil, ""
	applied := fmt.Sprintf(`{"apiVersion":"cluster.open-cluster-management.io/v1","kind":"ManagedCluster","metadata":{"name":%q},"spec":{"hubAcceptsClient":%v}}`, name, accepted)
	spec := fmt.Sprintf(`{"spec":{"hubAcceptsClient":%v}}`, accepted)
	return []attempt{
		try("PUT", path, framework.ToJSON(mc)), try("PUT", path+"?dryRun=All", framework.ToJSON(mc)),
		try("PATCH", path, spec), try("PATCH", path, spec).as(strategicPatch),
		try("PATCH", path, fmt.Sprintf(`[{"op":"replace","path":"/spec/hubAcceptsClient","value":%v}]`, accepted)).as(jsonPatch),
		try("PATCH", path+"?fieldManager=test&force=true", applied).as(applyPatch), try("PATCH", path+"?dryRun=All", spec),
	}
}

// putAccept puts a decision. metadata are further members of that, in JSON.
func putAccept(cluster string, accepted bool, metadata ...string) attempt {
	metadata = append([]string{fmt.Sprintf(`"name":%q`, cluster)}, metadata...)
	return try("PUT", registrationsPath+"/"+cluster+"/accept", fmt.Sprintf(
		`{"apiVersion":"register.open-cluster-management.io/v1alpha1","kind":"ManagedClusterAcceptance","metadata":{%s},"spec":{"accepted":%v}}`, strings.Join(metadata, ","), accepted))
}

// waitUntilMay waits until the hub has taken notice of what was granted.
func waitUntilMay(t *testing.T, who *rawCaller, path string) {
	t.Helper()
	framework.Eventually(t, "what was granted counts", func(ctx context.Context) error { return answers(ctx, who, rawRequest{method: "GET", path: path}, 200) })
}

// TestWhoMayDecide: to accept or to deny a cluster takes the right to that, by whatever
// write, and this right alone is good for that alone.
func TestWhoMayDecide(t *testing.T) {
	h := members(t)
	const name, other = "decided", "decided-other"
	for _, cluster := range []string{name, other} {
		h.request(t, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}})
	}
	undecided := func(t *testing.T, accepted bool, by string) {
		t.Helper()
		mc := h.cluster(t, name)
		if mc.Spec.HubAcceptsClient != accepted || (mc.Status.Acceptance == nil) != (by == "") || by != "" && mc.Status.Acceptance.DecidedBy != by {
			t.Errorf("it was decided: %v %s", mc.Spec.HubAcceptsClient, framework.ToJSON(mc.Status.Acceptance))
		}
	}
	each := func(t *testing.T, who *rawCaller, attempts []attempt) {
		t.Helper()
		for _, a := range attempts {
			code, text := who.must(t, a.rawRequest)
			if code != http.StatusForbidden || !strings.Contains(text, "managedclusters") {
				t.Errorf("%s as %s: got %d: %.300s", a, a.contentType, code, text)
			}
		}
	}

	t.Run("not who may update", func(t *testing.T) {
		h.mayDo(t, rbacv1.UserKind, "decide-updater", updateClusters...)
		who := newRawCaller(t, framework.Must(h.Hub.UserConfig("decide-updater"))(t))
		waitUntilMay(t, who, clustersPath)
		created := `{"apiVersion":"cluster.open-cluster-management.io/v1","kind":"ManagedCluster","metadata":{"name":"decided-new"},"spec":{"hubAcceptsClient":true}}`
		each(t, who, append(h.decisions(t, name, true), try("POST", clustersPath, created), try("POST", clustersPath+"?dryRun=All", created),
			try("PATCH", clustersPath+"/decided-new?fieldManager=test", created).as(applyPatch), putAccept(name, true)))
		undecided(t, false, "")
		if _, err := h.OCM.ClusterV1().ManagedClusters().Get(t.Context(), "decided-new", metav1.GetOptions{}); err == nil {
			t.Error("a cluster was created that is accepted")
		}
		h.accept(t, name)
		each(t, who, append(h.decisions(t, name, false), putAccept(name, false)))
		undecided(t, true, "admin")
		// What decides nothing is theirs: whoever keeps clusters in git writes the same again and again.
		for _, a := range append(h.decisions(t, name, true), try("PATCH", clustersPath+"/"+name, `{"metadata":{"labels":{"by":"updater"}}}`),
			try("PATCH", clustersPath+"/"+name+"/status", `{"spec":{"hubAcceptsClient":false},"status":{"version":{"kubernetes":"v1.2.3"}}}`)) {
			if code, text := who.must(t, a.rawRequest); code != http.StatusOK {
				t.Errorf("%s: got %d: %.300s", a, code, text)
			}
		}
		undecided(t, true, "admin")
		h.deny(t, name)
	})
	t.Run("who may accept, by accept alone", func(t *testing.T) {
		h.mayDo(t, rbacv1.UserKind, "decide-accepter", mayAccept(name))
		who := newRawCaller(t, framework.Must(h.Hub.UserConfig("decide-accepter"))(t))
		framework.Eventually(t, "it accepts", func(ctx context.Context) error {
			return answers(ctx, who, putAccept(name, true).rawRequest, http.StatusOK)
		})
		undecided(t, true, "decide-accepter")
		each(t, who, append(h.decisions(t, name, false), putAccept(other, true), try("GET", clustersPath+"/"+name), try("GET", registrationsPath+"/"+name),
			try("GET", registrationsPath+"/"+name+"/irsa"), try("DELETE", registrationsPath+"/"+name+"/irsa"), try("DELETE", clustersPath+"/"+name)))
		for what, a := range map[string]attempt{
			"a patch":          try("PATCH", registrationsPath+"/"+name+"/accept", `{"spec":{"accepted":false}}`).answered(403, 405),
			"a post":           try("POST", registrationsPath+"/"+name+"/accept", `{"spec":{"accepted":false}}`).answered(403, 405),
			"another's name":   try("PUT", registrationsPath+"/"+name+"/accept", putAccept(other, false).body).answered(400),
			"another's UID":    putAccept(name, false, `"uid":"00000000-0000-0000-0000-000000000000"`).answered(409),
			"an older version": putAccept(name, false, `"resourceVersion":"1"`).answered(409),
		} {
			if code, text := who.must(t, a.rawRequest); !slices.Contains(a.want, code) {
				t.Errorf("%s: got %d, not %v: %.300s", what, code, a.want, text)
			}
		}
		undecided(t, true, "decide-accepter")
		if code, text := who.must(t, putAccept(name, false).rawRequest); code != http.StatusOK {
			t.Errorf("to deny: got %d: %s", code, text)
		}
		undecided(t, false, "decide-accepter")
	})
	t.Run("the group counts", func(t *testing.T) {
		h.mayDo(t, rbacv1.GroupKind, "decide-group", append(updateClusters, mayAccept())...)
		who := newRawCaller(t, framework.Must(h.Hub.UserConfig("decide-member", "decide-group"))(t))
		waitUntilMay(t, who, clustersPath)
		for _, accepted := range []bool{true, false} {
			for i, a := range h.decisions(t, name, accepted) {
				if code, text := who.must(t, a.rawRequest); code != http.StatusOK {
					t.Errorf("decision %d %v: got %d: %.300s", i, accepted, code, text)
				}
			}
			undecided(t, accepted, "decide-member")
		}
	})
	t.Run("what else is known of who asks counts", func(t *testing.T) {
		h.mayDo(t, rbacv1.UserKind, "decide-extra", updateClusters...)
		with := func(scope string) *rawCaller {
			config := rest.CopyConfig(h.Hub.AdminConfig())
			config.Impersonate = rest.ImpersonationConfig{UserName: "decide-extra", Extra: map[string][]string{acceptScopes: {scope}}}
			return newRawCaller(t, config)
		}
		waitUntilMay(t, with(other), clustersPath)
		each(t, with(other), append(h.decisions(t, name, true), putAccept(name, true)))
		undecided(t, false, "decide-member")
		for _, a := range append(h.decisions(t, name, true), putAccept(name, true)) {
			if code, text := with(name).must(t, a.rawRequest); code != http.StatusOK {
				t.Errorf("%s: got %d: %.300s", a, code, text)
			}
		}
		undecided(t, true, "decide-extra")
	})
}

// TestRevocationIsInTheRequest: once a request is answered by which a cluster loses its
// access, the next request of the cluster is refused.
func TestRevocationIsInTheRequest(t *testing.T) {
	h := members(t)
	admin := newRawCaller(t, h.Hub.AdminConfig())
	for what, revoke := range map[string]func(name string, agent *rawCaller) (*rawCaller, attempt){
		"accept": func(name string, _ *rawCaller) (*rawCaller, attempt) {
			return admin, putAccept(name, false)
		},
		"patch": func(name string, _ *rawCaller) (*rawCaller, attempt) {
			return admin, try("PATCH", clustersPath+"/"+name, `{"spec":{"hubAcceptsClient":false}}`)
		},
		"withdraw": func(name string, _ *rawCaller) (*rawCaller, attempt) {
			return admin, try("DELETE", registrationsPath+"/"+name+"/irsa")
		},
		"leave": func(name string, agent *rawCaller) (*rawCaller, attempt) {
			return agent, try("PATCH", clustersPath+"/"+name, `{"spec":{"hubAcceptsClient":false}}`)
		},
	} {
		t.Run(what, func(t *testing.T) {
			name := "revoked-" + what
			config := h.entryConfig(t, h.joinEKS(t, name))
			// The hub asks itself before it asks the server, which keeps the hub's answers.
			agent, direct := newRawCaller(t, config), newRawCaller(t, h.pastTheHub(t, config))
			own := []rawRequest{{method: "GET", path: worksPath(name)}, try("PATCH", clustersPath+"/"+name+"/status", `{"status":{"version":{"kubernetes":"v1.0.0"}}}`).rawRequest}
			// What is answered now is what the server may have kept.
			for _, r := range own {
				for _, way := range []*rawCaller{agent, direct} {
					framework.Eventually(t, "the agent has its access", func(ctx context.Context) error { return answers(ctx, way, r, http.StatusOK) })
				}
			}
			who, a := revoke(name, agent)
			if code, text := who.must(t, a.rawRequest); code != http.StatusOK {
				t.Fatalf("%s: got %d: %s", a, code, text)
			}
			for _, r := range own {
				for _, way := range []*rawCaller{agent, direct} {
					if code, text := way.must(t, r); code != http.StatusForbidden {
						t.Errorf("%s of %s: got %d: %.300s", r, way.host, code, text)
					}
				}
			}
			framework.Eventually(t, "the hub refuses it as well", func(ctx context.Context) error {
				return answers(ctx, agent, rawRequest{method: "GET", path: "/apis/coordination.k8s.io/v1/namespaces/" + name + "/leases/" + registration.LeaseName}, http.StatusForbidden)
			})
		})
	}
}
