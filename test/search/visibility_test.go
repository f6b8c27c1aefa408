package search

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// onHub is a resource of the hub.
type onHub struct{ kind, namespace, name string }

func (o onHub) uid() string { return uidOf(o.kind, o.namespace, o.name) }

// hubResources reports resources of the hub, in two new namespaces and cluster-scoped. It returns the namespaces and
// the resources.
func (f *fleet) hubResources(t *testing.T) (one, two string, resources []onHub) {
	t.Helper()
	hub := f.hubReporter(t)
	one, two = framework.Unique("found-one"), framework.Unique("found-two")
	for _, namespace := range []string{one, two} {
		f.makeNamespace(t, namespace)
		t.Cleanup(func() {
			if err := f.HubClient.CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), namespace, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
		resources = append(resources,
			onHub{"Pod", namespace, "p1"}, onHub{"Pod", namespace, "p2"}, onHub{"ConfigMap", namespace, "c1"}, onHub{"ConfigMap", namespace, "c2"},
			onHub{"Secret", namespace, "s1"}, onHub{"Deployment", namespace, "d1"}, onHub{"Widget", namespace, "w1"}, onHub{"Namespace", "", namespace})
	}
	// Nodes have no namespace, so their names must be unique.
	resources = append(resources, onHub{"Node", "", one + "-a"}, onHub{"Node", "", one + "-b"})
	var reported []inventory.Resource
	for _, o := range resources {
		reported = append(reported, hub.resource(o.kind, o.namespace, o.name, with{"marked": one}))
	}
	hub.forgets(t, reported)
	hub.changes(t, inventory.Sync{AddResources: reported})
	return one, two, resources
}

func listing(group string, resources []string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, ResourceNames: names, Verbs: []string{"list"}}
}

// mayEverywhere grants rules with a ClusterRole and a ClusterRoleBinding. The returned function deletes the binding.
func (c *caller) mayEverywhere(t *testing.T, rules ...rbacv1.PolicyRule) func() {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: framework.Unique("test")}, Rules: rules}
	framework.CreateClusterRole(t, c.HubClient, role)
	unbind := c.bindEverywhere(t, role.Name)
	for _, rule := range rules {
		c.AwaitAllowed(t, "", rule)
	}
	return unbind
}

// TestSearchOnTheHubFollowsList checks that a search returns exactly the resources of the hub that the hub allows the
// caller to list.
func TestSearchOnTheHubFollowsList(t *testing.T) { onShared(t, searchOnTheHubFollowsList) }

func searchOnTheHubFollowsList(t *testing.T, f *fleet) {
	one, two, resources := f.hubResources(t)
	// The effect of this last grant shows that the server has received all previous grants.
	marker := func(t *testing.T, c *caller) { c.May(t, two, listing("apps", []string{"deployments"})) }
	callers := map[string]func(t *testing.T, c *caller){
		"nothing": func(*testing.T, *caller) {},
		"one kind in one namespace": func(t *testing.T, c *caller) {
			c.May(t, one, listing("", []string{"pods"}))
		},
		"single names": func(t *testing.T, c *caller) {
			c.May(t, one, listing("", []string{"configmaps"}, "c1", "nothing"))
			c.May(t, two, listing("", []string{"pods", "secrets"}, "p2", "s1"))
		},
		"everything in one namespace": func(t *testing.T, c *caller) {
			c.May(t, two, listing("*", []string{"*"}))
		},
		"the same resource name in another API group": func(t *testing.T, c *caller) {
			c.May(t, one, listing("example.com", []string{"pods", "widgets"}))
		},
		"one resource everywhere and another in one namespace": func(t *testing.T, c *caller) {
			c.mayEverywhere(t, listing("apps", []string{"deployments"}))
			c.May(t, two, listing("", []string{"configmaps"}))
		},
		"cluster-scoped resources": func(t *testing.T, c *caller) {
			c.mayEverywhere(t, listing("", []string{"nodes"}, one+"-a"), listing("", []string{"namespaces"}))
		},
		"verbs other than list": func(t *testing.T, c *caller) {
			rule := listing("", []string{"pods", "configmaps"})
			rule.Verbs = []string{"get", "watch", "deletecollection"}
			c.May(t, one, rule)
			c.May(t, two, listing("", []string{"pods/log"}))
			marker(t, c)
		},
		"the role view": func(t *testing.T, c *caller) {
			c.Bind(t, one, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"})
		},
		"managed clusters": func(t *testing.T, c *caller) {
			// Permission to view a managed cluster with the name of the hub gives no access to the hub.
			c.views(t, localhub.HubClusterName)
			marker(t, c)
		},
	}
	for what, grant := range callers {
		t.Run(what, func(t *testing.T) {
			c := f.searcher(t, framework.Unique("lister"))
			grant(t, c)
			var want []string
			kinds := map[string]int{}
			framework.Eventually(t, "the search returns the resources that the caller may list", func(ctx context.Context) error {
				want, kinds = nil, map[string]int{}
				for _, o := range resources {
					allowed, err := c.Allowed(ctx, o.namespace, "list", plurals[o.kind][1], plurals[o.kind][0], o.name)
					if err != nil {
						return err
					}
					if allowed {
						want = append(want, o.uid())
						kinds[o.kind]++
					}
				}
				result, err := search(ctx, c.OCM, textQuery("marked:"+one))
				if err != nil {
					return err
				}
				if err := same(result, want); err != nil {
					return fmt.Errorf("search: %w", err)
				}
				return nil
			})
			t.Logf("found %d of %d resources", len(want), len(resources))
			if what == "nothing" && len(want) > 0 || what == "everything in one namespace" && len(want) < 7 {
				t.Errorf("resources that the caller may list = %v, want none with no grant, and at least 7 in one whole namespace", want)
			}

			// Counts, completions, schemas and FleetResources must cover the same resources.
			terms := searchv1alpha1.SearchTerms{Query: "marked:" + one}
			count := framework.Must(search(t.Context(), c.OCM, searchv1alpha1.SearchRequest{SearchTerms: terms, Output: searchv1alpha1.OutputCount}))(t)
			if int(count.Count) != len(want) {
				t.Errorf("count = %d, want %d", count.Count, len(want))
			}
			values := map[string]int{}
			for _, value := range framework.Must(completed(t.Context(), c.OCM, searchv1alpha1.SearchCompletionSpec{Property: "kind", SearchTerms: terms}))(t).Values {
				values[value.Value] = int(value.Count)
			}
			if fmt.Sprint(values) != fmt.Sprint(kinds) {
				t.Errorf("completed kinds = %v, want %v", values, kinds)
			}
			schema := framework.Must(c.OCM.SearchV1alpha1().SearchSchemas().Create(t.Context(), &searchv1alpha1.SearchSchema{Spec: terms}, metav1.CreateOptions{}))(t)
			if (len(schema.Status.Properties) > 0) != (len(want) > 0) {
				t.Errorf("schema of %d matches = %v, want properties only if there are matches", len(want), schema.Status.Properties)
			}
			objects := framework.Must(c.OCM.SearchV1alpha1().FleetResources(localhub.HubClusterName).List(t.Context(), metav1.ListOptions{FieldSelector: "marked=" + one}))(t)
			slices.Sort(want)
			if got := objectNames(objects.Items); !slices.Equal(got, want) {
				t.Errorf("FleetResources = %v, want %v", got, want)
			}
		})
	}
	t.Run("an administrator", func(t *testing.T) {
		var all []string
		for _, o := range resources {
			all = append(all, o.uid())
		}
		// Users with permission to list Secrets of the hub find them.
		finds(t, f.OCM, "marked:"+one, all...)
	})
}

// TestSearchSeparatesCallers checks that callers without UID share no results, and that the name and the groups
// identify a caller.
func TestSearchSeparatesCallers(t *testing.T) { onShared(t, searchSeparatesCallers) }

func searchSeparatesCallers(t *testing.T, f *fleet) {
	s := f.smallFleet(t)
	query := "kind:Node cluster:" + s.seen.name + "," + s.hidden.name
	// Users of client certificates have no UID. The administrator searches first, so a shared cache would contain
	// resources that the other callers must not find.
	if result := searched(t, s.OCM, query); result.Count != 2 {
		t.Fatalf("count as administrator = %d, want 2", result.Count)
	}
	nothing := s.searcher(t, framework.Unique("nothing"))
	for range 3 {
		if result := searched(t, nothing.OCM, query); result.Count != 0 || len(result.Items) > 0 {
			t.Fatalf("search without permissions = %+v, want nothing", result)
		}
		if result := searched(t, s.viewer.OCM, query); result.Count != 1 || result.Items[0].Cluster != s.seen.name {
			t.Fatalf("search of the viewer = %+v, want the Node of %s", result, s.seen.name)
		}
	}

	t.Run("one name with different groups", func(t *testing.T) {
		name, red, blue := framework.Unique("twin"), framework.Unique("red"), framework.Unique("blue")
		inRed := newCaller(t, s.Hub, name, red)
		inRed.Subject = rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: red}
		inRed.maySearch(t)
		inBlue := newCaller(t, s.Hub, name, blue)
		inBlue.Subject = rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: blue}
		inBlue.maySearch(t)
		inRed.views(t, s.seen.name)
		inBlue.views(t, s.hidden.name)
		for _, test := range []struct {
			*caller
			cluster string
		}{{inRed, s.seen.name}, {inBlue, s.hidden.name}, {inRed, s.seen.name}} {
			framework.Eventually(t, "the search returns the Node of "+test.cluster, func(ctx context.Context) error {
				result, err := search(ctx, test.OCM, textQuery(query))
				if err == nil && (result.Count != 1 || result.Items[0].Cluster != test.cluster) {
					err = fmt.Errorf("found %+v", result.Items)
				}
				return err
			})
		}
	})
	t.Run("impersonation with extra", func(t *testing.T) {
		for _, extra := range []map[string][]string{nil, {"scopes": {"everything"}}, {"scopes": {"nothing"}, "example.com/Team": {"a", "b"}}} {
			as := s.impersonating(t, rest.ImpersonationConfig{UserName: s.viewer.Name, Extra: extra})
			finds(t, as, query, "node.node-1")
			as = s.impersonating(t, rest.ImpersonationConfig{UserName: nothing.Name, Extra: extra})
			finds(t, as, query)
		}
		// The UID of another caller does not give access to its results.
		as := s.impersonating(t, rest.ImpersonationConfig{UserName: nothing.Name, UID: "1", Extra: map[string][]string{"scopes": {"everything"}}})
		if result := searched(t, s.impersonating(t, rest.ImpersonationConfig{UserName: "root", UID: "1", Groups: []string{"system:masters"}}), query); result.Count != 2 {
			t.Errorf("count as administrator with the same UID = %d, want 2", result.Count)
		}
		finds(t, as, query)
	})
	t.Run("inventories of viewable clusters", func(t *testing.T) {
		for what, test := range map[string]struct {
			client *versioned.Clientset
			want   []string
		}{"the viewer": {s.viewer.OCM, []string{s.seen.name}}, "a caller without clusters": {nothing.OCM, nil}, "the administrator": {s.OCM, []string{s.seen.name, s.hidden.name}}} {
			list := framework.Must(test.client.SearchV1alpha1().Inventories(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{}))(t)
			got := map[string]bool{}
			for _, item := range list.Items {
				got[item.Name] = true
			}
			for _, cluster := range []string{s.seen.name, s.hidden.name} {
				_, err := test.client.SearchV1alpha1().Inventories(cluster).Get(t.Context(), cluster, metav1.GetOptions{})
				want := slices.Contains(test.want, cluster)
				if got[cluster] != want || (err == nil) != want || err != nil && !apierrors.IsNotFound(err) {
					t.Errorf("%s: listed inventories = %v, get of %s: error = %v, want inventories of %v", what, got, cluster, err, test.want)
				}
			}
			if what != "the administrator" && len(got) != len(test.want) {
				t.Errorf("%s: listed inventories = %v, want %v", what, got, test.want)
			}
		}
	})
	t.Run("no related resources without matches", func(t *testing.T) {
		request := textQuery("kind:Pod")
		request.Output = searchv1alpha1.OutputRelated
		if result := framework.Must(search(t.Context(), nothing.OCM, request))(t); result.Count != 0 || len(result.Related) != 0 {
			t.Errorf("search without permissions = %+v, want nothing", result)
		}
	})
}

// TestSearchNeverFindsSecretsOfManagedClusters checks that searches do not return Secrets of managed clusters, even if
// only the kind or only the plural name of a resource is that of a Secret.
func TestSearchNeverFindsSecretsOfManagedClusters(t *testing.T) {
	onShared(t, searchNeverFindsSecretsOfManagedClusters)
}

func searchNeverFindsSecretsOfManagedClusters(t *testing.T, f *fleet) {
	r := f.reporter(t)
	disguised := r.resource("Secret", "default", "by-plural", with{"kind": "Vault", "kind_plural": "secrets", "apigroup": "example.com"})
	disguised.Kind = "Vault"
	bare := r.resource("Secret", "default", "by-kind", with{"kind_plural": "vaults", "apigroup": "example.com"})
	bare.ResourceString = "vaults"
	late := r.resource("ConfigMap", "default", "late", nil)
	r.has(t, []inventory.Resource{
		r.resource("Secret", "default", "plain", nil), disguised, bare, late, r.resource("ConfigMap", "default", "settings", nil),
	}, edge(r.resource("Secret", "default", "plain", nil), r.resource("ConfigMap", "default", "settings", nil), "usedBy"))
	finds(t, f.OCM, "kind!=Cluster cluster:"+r.name, "configmap.default.late", "configmap.default.settings")
	// A resource that becomes a Secret is hidden from then on.
	turned := r.resource("Secret", "default", "late", nil)
	turned.UID = late.UID
	r.changes(t, inventory.Sync{UpdateResources: []inventory.Resource{turned}})
	finds(t, f.OCM, "cluster:"+r.name, "configmap.default.settings", clusterItself)
	request := textQuery("cluster:" + r.name)
	request.Output = searchv1alpha1.OutputRelated
	if got := framework.Must(search(t.Context(), f.OCM, request))(t); len(got.Related) != 0 {
		t.Errorf("related = %+v, want none", got.Related)
	}
	// No count discloses the number of Secrets.
	framework.Eventually(t, "the Inventory of "+r.name+" counts one resource", func(ctx context.Context) error {
		found, err := f.OCM.SearchV1alpha1().Inventories(r.name).Get(ctx, r.name, metav1.GetOptions{})
		if err == nil && found.Status.Resources != 1 {
			return fmt.Errorf("resources = %d, want 1", found.Status.Resources)
		}
		return err
	})
	if response := r.changes(t, inventory.Sync{}); response.TotalResources != 5 {
		t.Errorf("TotalResources = %d, want 5, Secrets included", response.TotalResources)
	}
	for _, property := range []string{"name", "kind", "kind_plural", "apigroup"} {
		values := framework.Must(completed(t.Context(), f.OCM, searchv1alpha1.SearchCompletionSpec{Property: property, SearchTerms: searchv1alpha1.SearchTerms{Query: "cluster:" + r.name}}))(t)
		for _, secret := range []string{"plain", "by-", "ecret", "vault", "example.com"} {
			if strings.Contains(strings.ToLower(counted(values.Values)), secret) {
				t.Errorf("completion of %s = %s, want no value of a Secret", property, counted(values.Values))
			}
		}
	}
}
