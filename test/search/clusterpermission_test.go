package search

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// markKey is the label of the objects that a test has made.
const markKey = "search-test"

// marked are objects of a cluster with a label of the test's own, in namespaces that only
// the test has.
type marked struct {
	value, shop, back string
	// uids are by kind, namespace (shop or back) and name.
	uids map[string]string
}

// newMarked makes the objects; an agent reports them.
func newMarked(t *testing.T, client kubernetes.Interface) *marked {
	t.Helper()
	m := &marked{value: framework.Unique("mark"), shop: framework.Unique("shop"), back: framework.Unique("back"), uids: map[string]string{}}
	ctx := t.Context()
	labels := map[string]string{markKey: m.value}
	for short, namespace := range map[string]string{"shop": m.shop, "back": m.back} {
		meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Labels: labels} }
		made := framework.Must(client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: meta(namespace)}, metav1.CreateOptions{}))(t)
		t.Cleanup(func() {
			err := client.CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), namespace, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		})
		m.uids["Namespace "+short] = string(made.UID)
		for _, name := range []string{"a", "b"} {
			configMap := framework.Must(client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta(name)}, metav1.CreateOptions{}))(t)
			m.uids["ConfigMap "+short+"/"+name] = string(configMap.UID)
		}
		secret := framework.Must(client.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{ObjectMeta: meta("s")}, metav1.CreateOptions{}))(t)
		m.uids["Secret "+short+"/s"] = string(secret.UID)
		template := corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "example.com/web:1"}}},
		}
		selector := &metav1.LabelSelector{MatchLabels: template.Labels}
		deployment := framework.Must(client.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
			ObjectMeta: meta("web"), Spec: appsv1.DeploymentSpec{Selector: selector, Template: template},
		}, metav1.CreateOptions{}))(t)
		m.uids["Deployment "+short+"/web"] = string(deployment.UID)
		// No controller makes it, so that nothing but what the test has made is there.
		replicas := &appsv1.ReplicaSet{ObjectMeta: meta("web-1"), Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: template}}
		replicas.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(deployment, appsv1.SchemeGroupVersion.WithKind("Deployment"))}
		m.uids["ReplicaSet "+short+"/web-1"] = string(framework.Must(client.AppsV1().ReplicaSets(namespace).Create(ctx, replicas, metav1.CreateOptions{}))(t).UID)
	}
	return m
}

// of are the kinds of some of the objects by their UIDs.
func (m *marked) of(t *testing.T, keys ...string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, key := range keys {
		var kind string
		if _, err := fmt.Sscan(key, &kind); err != nil || m.uids[key] == "" {
			t.Fatalf("the test has made no %s", key)
		}
		out[m.uids[key]] = kind
	}
	return out
}

// reported waits until an administrator finds all but Secrets.
func (m *marked) reported(t *testing.T, f *fleet, cluster string) {
	t.Helper()
	var all []string
	for key, uid := range m.uids {
		if key != "Secret shop/s" && key != "Secret back/s" {
			all = append(all, uid)
		}
	}
	finds(t, f.OCM, fmt.Sprintf("cluster:%s label:%s=%s", cluster, markKey, m.value), all...)
}

// findsMarked waits until all that can be asked tells of exactly these.
func (c *caller) findsMarked(t *testing.T, m *marked, keys ...string) {
	t.Helper()
	want := m.of(t, keys...)
	framework.Eventually(t, fmt.Sprintf("%s finds %v", c.Name, keys), func(ctx context.Context) error {
		return answersAre(ctx, c.OCM, markKey, m.value, want)
	})
}

// findsNoMore checks properties and relations, beyond which resources there are.
func (c *caller) findsNoMore(t *testing.T, m *marked, keys []string) {
	t.Helper()
	terms := searchv1alpha1.SearchTerms{Query: fmt.Sprintf("label:%s=%s", markKey, m.value)}
	schema := framework.Must(c.OCM.SearchV1alpha1().SearchSchemas().Create(t.Context(), &searchv1alpha1.SearchSchema{Spec: terms}, metav1.CreateOptions{}))(t)
	desired := slices.ContainsFunc(schema.Status.Properties, func(p searchv1alpha1.PropertyDescription) bool { return p.Name == "desired" })
	web, replicas := slices.Contains(keys, "Deployment shop/web"), slices.Contains(keys, "ReplicaSet shop/web-1")
	if want := strings.Contains(fmt.Sprint(keys), "web"); desired != want {
		t.Errorf("the schema of %v is %v", keys, schema.Status.Properties)
	}
	related := framework.Must(search(t.Context(), c.OCM, searchv1alpha1.SearchRequest{
		SearchTerms: searchv1alpha1.SearchTerms{Query: terms.Query + " kind:Deployment namespace:" + m.shop}, Output: searchv1alpha1.OutputRelated,
	}))(t).Related
	switch {
	case web && replicas:
		if len(related) != 1 || !slices.Equal(uids(related[0].Items), []string{m.uids["ReplicaSet shop/web-1"]}) {
			t.Errorf("related to the Deployment are %+v", related)
		}
	case len(related) > 0:
		t.Errorf("related to the Deployment are %+v, and found are %v", related, keys)
	}
}

// lists are rules to list a resource, all of it or some names.
func lists(group, resource string, names ...string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{listing(group, []string{resource}, names...)}
}

// grantsIn grants rules in a namespace of a managed cluster, by a Role.
func grantsIn(namespace string, subject rbacv1.Subject, rules []rbacv1.PolicyRule) rbacv1alpha1.ClusterPermissionSpec {
	return rbacv1alpha1.ClusterPermissionSpec{
		Roles: &[]rbacv1alpha1.Role{{Namespace: namespace, Rules: rules}},
		RoleBindings: &[]rbacv1alpha1.RoleBinding{{
			Namespace: namespace, RoleRef: rbacv1alpha1.RoleRef{Kind: "Role"}, Subject: &subject,
		}},
	}
}

// permissionOf is a ClusterPermission of a name of its own.
func permissionOf(cluster string, spec rbacv1alpha1.ClusterPermissionSpec) *rbacv1alpha1.ClusterPermission {
	return &rbacv1alpha1.ClusterPermission{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: framework.Unique("search")}, Spec: spec}
}

// TestSearchByClusterPermission: with the feature gate, what a ClusterPermission lets a
// caller list on a managed cluster is found, and nothing else.
func TestSearchByClusterPermission(t *testing.T) {
	t.Parallel()
	f := ownFleet(t, localhub.FleetOptions{
		Clusters: []string{framework.Cluster1}, HubAgent: true, APIServerArgs: []string{"--feature-gates=SearchByClusterPermission=true"},
	})
	m := newMarked(t, f.ManagedClient)
	m.reported(t, f, framework.Cluster1)
	// The same on another cluster, where nobody grants anything.
	other := f.reporter(t)
	var twins []inventory.Resource
	for _, kind := range []string{"ConfigMap", "Secret", "Deployment"} {
		twins = append(twins, other.resource(kind, m.shop, "a", with{"label": with{markKey: m.value}}))
	}
	other.has(t, twins)

	t.Run("what is granted is found", func(t *testing.T) { f.findsGranted(t, m) })
	t.Run("revoked, also from watches", func(t *testing.T) { f.revokesPermissions(t, m) })
	t.Run("delivered is what an agent has applied", func(t *testing.T) { f.findsAppliedOnly(t, m, other) })
	t.Run("what must not be found", func(t *testing.T) { f.findsNothingByTricks(t, m, other) })
	t.Run("what the hub's own agent reports", f.findsOwnResources)
	// What is left needs no more than a fleet that may be broken.
	data := filepath.Join(framework.OwnDir(t), "apiserver", "etcd", "search")
	t.Run("changes while the agent is away", func(t *testing.T) { f.agentIsAway(t, m) })
	t.Run("the search data is lost", func(t *testing.T) { f.losesSearchData(t, m, data) })
}

func (f *fleet) findsGranted(t *testing.T, m *marked) {
	team := framework.Unique("team")
	ofHub := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: framework.Unique("of-hub")}, Rules: lists("", "configmaps", "b")}
	framework.CreateClusterRole(t, f.HubClient, ofHub)
	everywhere := func(subject rbacv1.Subject, rules []rbacv1.PolicyRule) rbacv1alpha1.ClusterPermissionSpec {
		return rbacv1alpha1.ClusterPermissionSpec{
			ClusterRole: &rbacv1alpha1.ClusterRole{Rules: rules}, ClusterRoleBinding: &rbacv1alpha1.ClusterRoleBinding{Subject: &subject},
		}
	}
	bound := func(namespace string, subject rbacv1.Subject, role rbacv1alpha1.RoleRef) *[]rbacv1alpha1.RoleBinding {
		return &[]rbacv1alpha1.RoleBinding{{Namespace: namespace, RoleRef: role, Subject: &subject}}
	}
	notListing := lists("", "configmaps")
	notListing[0].Verbs = []string{"get", "watch"}
	everything := listing("*", []string{"*"})
	everything.Verbs = []string{"*"}
	for what, test := range map[string]struct {
		// subject is that of the ClusterPermission; nil for the user itself.
		subject func(c *caller) rbacv1.Subject
		spec    func(rbacv1.Subject) rbacv1alpha1.ClusterPermissionSpec
		want    []string
	}{
		"a kind in one namespace": {
			spec: func(s rbacv1.Subject) rbacv1alpha1.ClusterPermissionSpec {
				return grantsIn(m.shop, s, lists("", "configmaps"))
			},
			want: []string{"ConfigMap shop/a", "ConfigMap shop/b"},
		},
		"single names, of Secrets too": {
			spec: func(s rbacv1.Subject) rbacv1alpha1.ClusterPermissionSpec {
				return grantsIn(m.back, s, slices.Concat(lists("", "configmaps", "a", "nothing"), lists("", "secrets", "s")))
			},
			want: []string{"ConfigMap back/a", "Secret back/s"},
		},
		"everywhere, by a ClusterRole": {
			spec: func(s rbacv1.Subject) rbacv1alpha1.ClusterPermissionSpec {
				return everywhere(s, slices.Concat(lists("", "namespaces"), lists("apps", "deployments")))
			},
			want: []string{"Namespace shop", "Namespace back", "Deployment shop/web", "Deployment back/web"},
		},
		"everywhere, single names": {
			spec: func(s rbacv1.Subject) rbacv1alpha1.ClusterPermissionSpec {
				return everywhere(s, slices.Concat(lists("", "namespaces", m.back), lists("", "configmaps", "b")))
			},
			want: []string{"Namespace back", "ConfigMap shop/b", "ConfigMap back/b"},
		},
		"a ClusterRole in one namespace": {
			spec: func(s rbacv1.Subject) rbacv1alpha1.ClusterPermissionSpec {
				return rbacv1alpha1.ClusterPermissionSpec{
					ClusterRole:  &rbacv1alpha1.ClusterRole{Rules: slices.Concat(lists("apps", "deployments"), lists("", "namespaces"))},
					RoleBindings: bound(m.back, s, rbacv1alpha1.RoleRef{Kind: "ClusterRole"}),
				}
			},
			want: []string{"Deployment back/web"},
		},
		"a role that every cluster has": {
			spec: func(s rbacv1.Subject) rbacv1alpha1.ClusterPermissionSpec {
				return rbacv1alpha1.ClusterPermissionSpec{RoleBindings: bound(m.shop, s, rbacv1alpha1.RoleRef{APIGroup: new(rbacv1.GroupName), Kind: "ClusterRole", Name: new("view")})}
			},
			want: []string{"ConfigMap shop/a", "ConfigMap shop/b", "Deployment shop/web", "ReplicaSet shop/web-1"},
		},
		"a role of the hub that is delivered": {
			spec: func(s rbacv1.Subject) rbacv1alpha1.ClusterPermissionSpec {
				return rbacv1alpha1.ClusterPermissionSpec{
					RoleRefs:     &[]rbacv1alpha1.HubRoleRef{{Kind: "ClusterRole", Name: ofHub.Name}},
					RoleBindings: bound(m.back, s, rbacv1alpha1.RoleRef{APIGroup: new(rbacv1.GroupName), Kind: "ClusterRole", Name: new(ofHub.Name)}),
				}
			},
			want: []string{"ConfigMap back/b"},
		},
		"everything in one namespace": {
			spec: func(s rbacv1.Subject) rbacv1alpha1.ClusterPermissionSpec {
				return grantsIn(m.shop, s, []rbacv1.PolicyRule{everything})
			},
			want: []string{"ConfigMap shop/a", "ConfigMap shop/b", "Secret shop/s", "Deployment shop/web", "ReplicaSet shop/web-1"},
		},
		"a group": {
			subject: func(*caller) rbacv1.Subject {
				return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: team}
			},
			spec: func(s rbacv1.Subject) rbacv1alpha1.ClusterPermissionSpec {
				return grantsIn(m.back, s, lists("apps", "replicasets"))
			},
			want: []string{"ReplicaSet back/web-1"},
		},
		"a group of another name": {
			subject: func(c *caller) rbacv1.Subject {
				return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: c.Name}
			},
			spec: func(s rbacv1.Subject) rbacv1alpha1.ClusterPermissionSpec {
				return grantsIn(m.back, s, lists("", "configmaps"))
			},
		},
		"verbs that do not list": {
			spec: func(s rbacv1.Subject) rbacv1alpha1.ClusterPermissionSpec { return grantsIn(m.shop, s, notListing) },
		},
		"another API group": {
			spec: func(s rbacv1.Subject) rbacv1alpha1.ClusterPermissionSpec {
				return grantsIn(m.shop, s, lists("extensions", "deployments"))
			},
		},
		"a subresource": {
			spec: func(s rbacv1.Subject) rbacv1alpha1.ClusterPermissionSpec {
				return grantsIn(m.shop, s, lists("apps", "deployments/status"))
			},
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := f.searcher(t, framework.Unique("alice"), map[bool]string{true: team, false: framework.Unique("others")}[what == "a group"])
			subject := c.Subject
			if test.subject != nil {
				subject = test.subject(c)
			}
			cp := framework.CreatePermission(t, f.OCM, permissionOf(framework.Cluster1, test.spec(subject)))
			f.Applied(t, cp.Name)
			if len(test.want) == 0 {
				f.witnesses(t, m)
			}
			c.findsMarked(t, m, test.want...)
			c.findsNoMore(t, m, test.want)
		})
	}
	t.Run("a ServiceAccount of the cluster is not one of the hub", func(t *testing.T) {
		t.Parallel()
		robot := newAccountCaller(t, f.Hub, "default", framework.Unique("robot"))
		robot.maySearch(t)
		cp := framework.CreatePermission(t, f.OCM, permissionOf(framework.Cluster1, grantsIn(m.shop, robot.Subject, lists("", "configmaps"))))
		f.Applied(t, cp.Name)
		// Nor is one whom the cluster would know by that name.
		cp = framework.CreatePermission(t, f.OCM, permissionOf(framework.Cluster1, grantsIn(m.shop, *framework.UserSubject(robot.Name), lists("", "configmaps"))))
		f.Applied(t, cp.Name)
		f.witnesses(t, m)
		robot.findsMarked(t, m)
	})
}

// witnesses waits until the server knows what was applied on the cluster before: somebody
// finds what is granted now.
func (f *fleet) witnesses(t *testing.T, m *marked) {
	t.Helper()
	witness := f.searcher(t, framework.Unique("witness"))
	cp := framework.CreatePermission(t, f.OCM, permissionOf(framework.Cluster1, grantsIn(m.back, witness.Subject, lists("", "configmaps", "a"))))
	f.Applied(t, cp.Name)
	witness.findsMarked(t, m, "ConfigMap back/a")
}

// revokesPermissions takes back what was granted, in each way that there is.
func (f *fleet) revokesPermissions(t *testing.T, m *marked) {
	c := f.searcher(t, framework.Unique("revoked"))
	watching := framework.Must(c.OCM.SearchV1alpha1().FleetResources(metav1.NamespaceAll).Watch(t.Context(), metav1.ListOptions{
		LabelSelector: markKey + "=" + m.value, SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}))(t)
	defer watching.Stop()
	if event := nextOfAny(t, watching); event.Type != watch.Bookmark {
		t.Fatalf("before anything is granted there is %s", event.Type)
	}
	keys := []string{"ConfigMap shop/a", "ConfigMap shop/b"}
	granted := slices.Collect(maps.Keys(m.of(t, keys...)))
	takes := func(what string, change func() error, typed watch.EventType, want ...string) {
		t.Helper()
		start := time.Now()
		if err := change(); err != nil {
			t.Fatal(err)
		}
		done := time.Since(start)
		c.findsMarked(t, m, want...)
		inSearches := time.Since(start)
		wantEvents(t, watching, typed, granted...)
		t.Logf("%s takes %v; searches show it after %v, the watch after %v", what,
			done.Round(time.Millisecond), inSearches.Round(time.Millisecond), time.Since(start).Round(time.Millisecond))
	}
	permissions := f.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1)
	var cp *rbacv1alpha1.ClusterPermission
	grant := func() error {
		cp = framework.CreatePermission(t, f.OCM, permissionOf(framework.Cluster1, grantsIn(m.shop, c.Subject, lists("", "configmaps"))))
		return nil
	}
	update := func(change func(*rbacv1alpha1.ClusterPermissionSpec)) func() error {
		return func() error {
			return framework.Poll(t.Context(), func(ctx context.Context) error {
				now, err := permissions.Get(ctx, cp.Name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				change(&now.Spec)
				_, err = permissions.Update(ctx, now, metav1.UpdateOptions{})
				return err
			})
		}
	}
	takes("granting", grant, watch.Added, keys...)
	takes("deleting it", func() error { return permissions.Delete(t.Context(), cp.Name, metav1.DeleteOptions{}) }, watch.Deleted)
	takes("granting again", grant, watch.Added, keys...)
	takes("naming another user", update(func(spec *rbacv1alpha1.ClusterPermissionSpec) {
		(*spec.RoleBindings)[0].Subject = framework.UserSubject(framework.Unique("somebody-else"))
	}), watch.Deleted)
	takes("naming the user again", update(func(spec *rbacv1alpha1.ClusterPermissionSpec) {
		(*spec.RoleBindings)[0].Subject = framework.UserSubject(c.Name)
	}), watch.Added, keys...)
	takes("rules for something else", update(func(spec *rbacv1alpha1.ClusterPermissionSpec) {
		(*spec.Roles)[0].Rules = lists("", "services")
	}), watch.Deleted)
}

// findsAppliedOnly: what a cluster has not applied, nobody may list there; and what one
// cluster grants shows nothing of another.
func (f *fleet) findsAppliedOnly(t *testing.T, m *marked, other *reporter) {
	c := f.searcher(t, framework.Unique("waiting"))
	cp := framework.CreatePermission(t, f.OCM, permissionOf(other.name, grantsIn(m.shop, c.Subject, lists("", "configmaps"))))
	f.WorkOf(t, cp)
	// One that is applied, elsewhere, shows that the server has seen the first one.
	elsewhere := framework.CreatePermission(t, f.OCM, permissionOf(framework.Cluster1, grantsIn(m.back, c.Subject, lists("", "configmaps", "a"))))
	f.Applied(t, elsewhere.Name)
	c.findsMarked(t, m, "ConfigMap back/a")
	f.ReportWork(t, cp, func(work *workv1.ManifestWork) { framework.MarkApplied(work, "applied") })
	want := m.of(t, "ConfigMap back/a")
	want[uidOf("ConfigMap", m.shop, "a")] = "ConfigMap"
	framework.Eventually(t, "what is applied is found", func(ctx context.Context) error { return answersAre(ctx, c.OCM, markKey, m.value, want) })
	list := framework.Must(c.OCM.SearchV1alpha1().FleetResources(other.name).List(t.Context(), metav1.ListOptions{}))(t)
	if got := objectNames(list.Items); !slices.Equal(got, []string{uidOf("ConfigMap", m.shop, "a")}) {
		t.Errorf("on %s there are %v", other.name, got)
	}
}

// findsOwnResources: the hub's own agent reports them as local-cluster, and found they are
// by those whom the hub lets list them.
func (f *fleet) findsOwnResources(t *testing.T) {
	m := newMarked(t, f.HubClient)
	c, nobody := f.searcher(t, framework.Unique("on-hub")), f.searcher(t, framework.Unique("on-no-hub"))
	c.May(t, m.shop, listing("", []string{"configmaps"}), listing("", []string{"secrets"}))
	c.May(t, m.back, listing("apps", []string{"deployments", "replicasets"}), listing("", []string{"configmaps"}, "b"))
	// What ClusterPermissions grant they grant on managed clusters.
	cp := framework.CreatePermission(t, f.OCM, permissionOf(framework.Cluster1, rbacv1alpha1.ClusterPermissionSpec{
		ClusterRole:        &rbacv1alpha1.ClusterRole{Rules: lists("*", "*")},
		ClusterRoleBinding: &rbacv1alpha1.ClusterRoleBinding{Subject: &nobody.Subject},
	}))
	f.Applied(t, cp.Name)
	want := []string{"ConfigMap shop/a", "ConfigMap shop/b", "Secret shop/s", "Deployment back/web", "ReplicaSet back/web-1", "ConfigMap back/b"}
	c.findsMarked(t, m, want...)
	framework.Eventually(t, "the ClusterPermission counts", func(ctx context.Context) error {
		found, err := search(ctx, nobody.OCM, textQuery("kind:Secret cluster:"+framework.Cluster1))
		if err == nil && found.Count == 0 {
			err = errors.New("no Secret of the cluster is found")
		}
		return err
	})
	nobody.findsMarked(t, m)
	// ClusterNamespaces have the labels of their namespaces.
	query := fmt.Sprintf("cluster:%s label:%s=%s kind!=ClusterNamespace", localhub.HubClusterName, markKey, m.value)
	finds(t, f.OCM, query, slices.Collect(maps.Values(m.uids))...)
	framework.Eventually(t, "the hub's inventory is there", func(ctx context.Context) error {
		found, err := f.OCM.SearchV1alpha1().Inventories(localhub.HubClusterName).Get(ctx, localhub.HubClusterName, metav1.GetOptions{})
		if err == nil && found.Status.State != searchv1alpha1.InventoryReporting {
			err = fmt.Errorf("it is %+v", found.Status)
		}
		return err
	})
}

// TestSearchIgnoresClusterPermissions unless the feature gate is on.
func TestSearchIgnoresClusterPermissions(t *testing.T) {
	t.Parallel()
	f := shared(t)
	m := newMarked(t, f.ManagedClient)
	c := f.searcher(t, framework.Unique("ungated"))
	m.reported(t, f, framework.Cluster1)
	cp := framework.CreatePermission(t, f.OCM, permissionOf(framework.Cluster1, grantsIn(m.shop, c.Subject, lists("", "configmaps"))))
	f.Applied(t, cp.Name)
	managed, err := f.Members[0].UserConfig(c.Name)
	asUser, err := kubernetes.NewForConfig(framework.Must(managed, err)(t))
	framework.Eventually(t, "it may list them on the cluster", func(ctx context.Context) error {
		_, err := framework.Must(asUser, err)(t).CoreV1().ConfigMaps(m.shop).List(ctx, metav1.ListOptions{})
		return err
	})
	c.findsMarked(t, m)
	// Searching follows the hub all the while.
	revoke := c.views(t, framework.Cluster1)
	keys := slices.DeleteFunc(slices.Collect(maps.Keys(m.uids)), func(key string) bool { return key == "Secret shop/s" || key == "Secret back/s" })
	c.findsMarked(t, m, keys...)
	revoke()
	c.findsMarked(t, m)
}
