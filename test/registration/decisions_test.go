package registration

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// decisions returns every write of a ManagedCluster that accepts or denies it.
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

// putAccept returns a PUT of the subresource accept. metadata contains further JSON members of the
// metadata of its object.
func putAccept(cluster string, accepted bool, metadata ...string) attempt {
	metadata = append([]string{fmt.Sprintf(`"name":%q`, cluster)}, metadata...)
	return try("PUT", registrationsPath+"/"+cluster+"/accept", fmt.Sprintf(
		`{"apiVersion":"register.open-cluster-management.io/v1alpha1","kind":"ManagedClusterAcceptance","metadata":{%s},"spec":{"accepted":%v}}`, strings.Join(metadata, ","), accepted))
}

// waitUntilMay waits until a new grant takes effect on the hub.
func waitUntilMay(t *testing.T, who *rawCaller, path string) {
	t.Helper()
	framework.Eventually(t, "GET "+path+" returns 200", func(ctx context.Context) error { return answers(ctx, who, rawRequest{method: "GET", path: path}, 200) })
}

// TestDecisionsRequirePermission checks that every write that accepts or denies a cluster requires the
// permission to update managedclusters/accept, and that this permission allows no other request.
func TestDecisionsRequirePermission(t *testing.T) {
	h := members(t)
	const name, other = "decided", "decided-other"
	for _, cluster := range []string{name, other} {
		h.request(t, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}})
	}
	undecided := func(t *testing.T, accepted bool, by string) {
		t.Helper()
		mc := h.cluster(t, name)
		if mc.Spec.HubAcceptsClient != accepted || (mc.Status.Acceptance == nil) != (by == "") || by != "" && mc.Status.Acceptance.DecidedBy != by {
			t.Errorf("ManagedCluster %s has hubAcceptsClient %v and acceptance %s, want %v, decided by %q", name, mc.Spec.HubAcceptsClient, framework.ToJSON(mc.Status.Acceptance), accepted, by)
		}
	}
	each := func(t *testing.T, who *rawCaller, attempts []attempt) {
		t.Helper()
		for _, a := range attempts {
			code, text := who.must(t, a.rawRequest)
			if code != http.StatusForbidden || !strings.Contains(text, "managedclusters") {
				t.Errorf("%s as %s = %d, want 403 for managedclusters: %.300s", a, a.contentType, code, text)
			}
		}
	}

	t.Run("update is not enough", func(t *testing.T) {
		h.mayDo(t, rbacv1.UserKind, "decide-updater", updateClusters...)
		who := newRawCaller(t, framework.Must(h.Hub.UserConfig("decide-updater"))(t))
		waitUntilMay(t, who, clustersPath)
		created := `{"apiVersion":"cluster.open-cluster-management.io/v1","kind":"ManagedCluster","metadata":{"name":"decided-new"},"spec":{"hubAcceptsClient":true}}`
		each(t, who, append(h.decisions(t, name, true), try("POST", clustersPath, created), try("POST", clustersPath+"?dryRun=All", created),
			try("PATCH", clustersPath+"/decided-new?fieldManager=test", created).as(applyPatch), putAccept(name, true)))
		undecided(t, false, "")
		if _, err := h.OCM.ClusterV1().ManagedClusters().Get(t.Context(), "decided-new", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("get ManagedCluster decided-new = %v, want NotFound", err)
		}
		h.accept(t, name)
		each(t, who, append(h.decisions(t, name, false), putAccept(name, false)))
		undecided(t, true, "admin")
		// A write that does not change the decision does not require accept. GitOps tools write the
		// same object repeatedly.
		for _, a := range append(h.decisions(t, name, true), try("PATCH", clustersPath+"/"+name, `{"metadata":{"labels":{"by":"updater"}}}`),
			try("PATCH", clustersPath+"/"+name+"/status", `{"spec":{"hubAcceptsClient":false},"status":{"version":{"kubernetes":"v1.2.3"}}}`)) {
			if code, text := who.must(t, a.rawRequest); code != http.StatusOK {
				t.Errorf("%s = %d, want 200: %.300s", a, code, text)
			}
		}
		undecided(t, true, "admin")
		h.deny(t, name)
	})
	t.Run("accept allows no other request", func(t *testing.T) {
		h.mayDo(t, rbacv1.UserKind, "decide-accepter", mayAccept(name))
		who := newRawCaller(t, framework.Must(h.Hub.UserConfig("decide-accepter"))(t))
		framework.Eventually(t, "decide-accepter can accept "+name, func(ctx context.Context) error {
			return answers(ctx, who, putAccept(name, true).rawRequest, http.StatusOK)
		})
		undecided(t, true, "decide-accepter")
		each(t, who, append(h.decisions(t, name, false), putAccept(other, true), try("GET", clustersPath+"/"+name), try("GET", registrationsPath+"/"+name),
			try("GET", registrationsPath+"/"+name+"/irsa"), try("DELETE", registrationsPath+"/"+name+"/irsa"), try("DELETE", clustersPath+"/"+name)))
		for what, a := range map[string]attempt{
			"a patch":                     try("PATCH", registrationsPath+"/"+name+"/accept", `{"spec":{"accepted":false}}`).answered(403, 405),
			"a post":                      try("POST", registrationsPath+"/"+name+"/accept", `{"spec":{"accepted":false}}`).answered(403, 405),
			"the name of another cluster": try("PUT", registrationsPath+"/"+name+"/accept", putAccept(other, false).body).answered(400),
			"another UID":                 putAccept(name, false, `"uid":"00000000-0000-0000-0000-000000000000"`).answered(409),
			"an outdated resourceVersion": putAccept(name, false, `"resourceVersion":"1"`).answered(409),
		} {
			if code, text := who.must(t, a.rawRequest); !slices.Contains(a.want, code) {
				t.Errorf("acceptance by %s = %d, want one of %v: %.300s", what, code, a.want, text)
			}
		}
		undecided(t, true, "decide-accepter")
		if code, text := who.must(t, putAccept(name, false).rawRequest); code != http.StatusOK {
			t.Errorf("denial by decide-accepter = %d, want 200: %s", code, text)
		}
		undecided(t, false, "decide-accepter")
	})
	t.Run("permission of a group", func(t *testing.T) {
		h.mayDo(t, rbacv1.GroupKind, "decide-group", append(updateClusters, mayAccept())...)
		who := newRawCaller(t, framework.Must(h.Hub.UserConfig("decide-member", "decide-group"))(t))
		waitUntilMay(t, who, clustersPath)
		for _, accepted := range []bool{true, false} {
			for i, a := range h.decisions(t, name, accepted) {
				if code, text := who.must(t, a.rawRequest); code != http.StatusOK {
					t.Errorf("decision %d with accepted %v = %d, want 200: %.300s", i, accepted, code, text)
				}
			}
			undecided(t, accepted, "decide-member")
		}
	})
	t.Run("permission by user extra", func(t *testing.T) {
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
				t.Errorf("%s = %d, want 200: %.300s", a, code, text)
			}
		}
		undecided(t, true, "decide-extra")
	})
}

// TestRevocationIsImmediate checks that the server rejects the next request of a cluster after the
// response to a request that revokes its access.
func TestRevocationIsImmediate(t *testing.T) {
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
			// The hub authorizes a request before it forwards it. The server authorizes it again,
			// and caches the answers of the hub.
			agent, direct := newRawCaller(t, config), newRawCaller(t, h.pastTheHub(t, config))
			own := []rawRequest{{method: "GET", path: worksPath(name)}, try("PATCH", clustersPath+"/"+name+"/status", `{"status":{"version":{"kubernetes":"v1.0.0"}}}`).rawRequest}
			// These requests fill the cache of the server.
			for _, r := range own {
				for _, way := range []*rawCaller{agent, direct} {
					framework.Eventually(t, fmt.Sprintf("%s at %s returns 200", r, way.host), func(ctx context.Context) error { return answers(ctx, way, r, http.StatusOK) })
				}
			}
			who, a := revoke(name, agent)
			if code, text := who.must(t, a.rawRequest); code != http.StatusOK {
				t.Fatalf("%s = %d, want 200: %s", a, code, text)
			}
			for _, r := range own {
				for _, way := range []*rawCaller{agent, direct} {
					if code, text := way.must(t, r); code != http.StatusForbidden {
						t.Errorf("%s at %s = %d, want 403: %.300s", r, way.host, code, text)
					}
				}
			}
			framework.Eventually(t, "the hub rejects a GET of the Lease by the agent", func(ctx context.Context) error {
				return answers(ctx, agent, rawRequest{method: "GET", path: "/apis/coordination.k8s.io/v1/namespaces/" + name + "/leases/" + registration.LeaseName}, http.StatusForbidden)
			})
		})
	}
}
