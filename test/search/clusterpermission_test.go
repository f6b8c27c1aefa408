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

	accessv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/access/v1alpha1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// markKey is the label of the objects of a test.
const markKey = "search-test"

// marked contains objects of a cluster with the label of the test, in the test's own namespaces.
type marked struct {
	value, shop, back string
	// uids contains UIDs by kind, namespace (shop or back) and name.
	uids map[string]string
}

// newMarked creates the objects on a cluster, where an agent reports them.
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
		// No Deployment or ReplicaSet controller runs, so no other objects are created.
		replicas := &appsv1.ReplicaSet{ObjectMeta: meta("web-1"), Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: template}}
		replicas.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(deployment, appsv1.SchemeGroupVersion.WithKind("Deployment"))}
		m.uids["ReplicaSet "+short+"/web-1"] = string(framework.Must(client.AppsV1().ReplicaSets(namespace).Create(ctx, replicas, metav1.CreateOptions{}))(t).UID)
	}
	return m
}

// of returns the kinds of the objects with the given keys, by UID.
func (m *marked) of(t *testing.T, keys ...string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, key := range keys {
		var kind string
		if _, err := fmt.Sscan(key, &kind); err != nil || m.uids[key] == "" {
			t.Fatalf("the test has not created %s", key)
		}
		out[m.uids[key]] = kind
	}
	return out
}

// reported waits until an administrator finds all objects except Secrets.
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

// findsMarked waits until all endpoints return exactly the objects with the given keys.
func (c *caller) findsMarked(t *testing.T, m *marked, keys ...string) {
	t.Helper()
	want := m.of(t, keys...)
	framework.Eventually(t, fmt.Sprintf("%s finds %v", c.Name, keys), func(ctx context.Context) error {
		return answersAre(ctx, c.OCM, markKey, m.value, want)
	})
}

// findsNoMore checks that the schema and the related resources depend only on the objects with the given keys.
func (c *caller) findsNoMore(t *testing.T, m *marked, keys []string) {
	t.Helper()
	terms := searchv1alpha1.SearchTerms{Query: fmt.Sprintf("label:%s=%s", markKey, m.value)}
	schema := framework.Must(c.OCM.SearchV1alpha1().SearchSchemas().Create(t.Context(), &searchv1alpha1.SearchSchema{Spec: terms}, metav1.CreateOptions{}))(t)
	desired := slices.ContainsFunc(schema.Status.Properties, func(p searchv1alpha1.PropertyDescription) bool { return p.Name == "desired" })
	web, replicas := slices.Contains(keys, "Deployment shop/web"), slices.Contains(keys, "ReplicaSet shop/web-1")
	if want := strings.Contains(fmt.Sprint(keys), "web"); desired != want {
		t.Errorf("schema of %v = %v, contains desired = %t, want %t", keys, schema.Status.Properties, desired, want)
	}
	related := framework.Must(search(t.Context(), c.OCM, searchv1alpha1.SearchRequest{
		SearchTerms: searchv1alpha1.SearchTerms{Query: terms.Query + " kind:Deployment namespace:" + m.shop}, Output: searchv1alpha1.OutputRelated,
	}))(t).Related
	switch {
	case web && replicas:
		if len(related) != 1 || !slices.Equal(uids(related[0].Items), []string{m.uids["ReplicaSet shop/web-1"]}) {
			t.Errorf("related to the Deployment = %+v, want its ReplicaSet only", related)
		}
	case len(related) > 0:
		t.Errorf("related to the Deployment = %+v, want none for a caller that finds %v", related, keys)
	}
}

// lists returns a rule that allows list on a resource, or on single names of it.
func lists(group, resource string, names ...string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{listing(group, []string{resource}, names...)}
}

// grantsIn returns a spec that grants rules in a namespace of a managed cluster with a Role.
func grantsIn(namespace string, subject rbacv1.Subject, rules []rbacv1.PolicyRule) rbacv1alpha1.ClusterPermissionSpec {
	return rbacv1alpha1.ClusterPermissionSpec{
		Roles: &[]rbacv1alpha1.Role{{Namespace: namespace, Rules: rules}},
		RoleBindings: &[]rbacv1alpha1.RoleBinding{{
			Namespace: namespace, RoleRef: rbacv1alpha1.RoleRef{Kind: "Role"}, Subject: &subject,
		}},
	}
}

// permissionOf returns a ClusterPermission with a unique name.
func permissionOf(cluster string, spec rbacv1alpha1.ClusterPermissionSpec) *rbacv1alpha1.ClusterPermission {
	return &rbacv1alpha1.ClusterPermission{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: framework.Unique("search")}, Spec: spec}
}

// TestSearchByClusterPermission checks that, with the feature gate, callers find exactly the resources of a managed
// cluster that ClusterPermissions allow them to list.
func TestSearchByClusterPermission(t *testing.T) {
	t.Parallel()
	f := ownFleet(t, localhub.FleetOptions{
		Clusters: []string{framework.Cluster1}, HubAgent: true, APIServerArgs: []string{"--feature-gates=SearchByClusterPermission=true"},
	})
	m := newMarked(t, f.ManagedClient)
	m.reported(t, f, framework.Cluster1)
	// Another cluster has the same objects without grants.
	other := f.reporter(t)
	var twins []inventory.Resource
	for _, kind := range []string{"ConfigMap", "Secret", "Deployment"} {
		twins = append(twins, other.resource(kind, m.shop, "a", with{"label": with{markKey: m.value}}))
	}
	other.has(t, twins)

	t.Run("granted resources are found", func(t *testing.T) { f.findsGranted(t, m) })
	t.Run("revocations in searches and watches", func(t *testing.T) { f.revokesPermissions(t, m) })
	t.Run("grants take effect when applied", func(t *testing.T) { f.findsAppliedOnly(t, m, other) })
	t.Run("invalid grants have no effect", func(t *testing.T) { f.ignoresInvalidGrants(t, m, other) })
	t.Run("permissions of the cluster", func(t *testing.T) { f.followsCluster(t, m) })
	t.Run("the RBAC of the cluster is unknown", func(t *testing.T) { f.followsUnknownCluster(t, m) })
	t.Run("resources of the hub", f.findsOwnResources)
	// The remaining tests may break the fleet.
	data := filepath.Join(framework.OwnDir(t), "apiserver", "etcd", "search")
	t.Run("changes while the agent is stopped", func(t *testing.T) { f.agentStops(t, m) })
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
		// subject returns the subject of the ClusterPermission. If it is nil, the subject is the user.
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
		"single names, including a Secret": {
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
	t.Run("a ServiceAccount of the cluster is not a ServiceAccount of the hub", func(t *testing.T) {
		t.Parallel()
		robot := newAccountCaller(t, f.Hub, "default", framework.Unique("robot"))
		robot.maySearch(t)
		cp := framework.CreatePermission(t, f.OCM, permissionOf(framework.Cluster1, grantsIn(m.shop, robot.Subject, lists("", "configmaps"))))
		f.Applied(t, cp.Name)
		// A ServiceAccount of the cluster with that name is another subject.
		cp = framework.CreatePermission(t, f.OCM, permissionOf(framework.Cluster1, grantsIn(m.shop, *framework.UserSubject(robot.Name), lists("", "configmaps"))))
		f.Applied(t, cp.Name)
		f.witnesses(t, m)
		robot.findsMarked(t, m)
	})
}

// witnesses waits until the server has processed all grants that were applied before. It applies another grant and
// waits until a new caller finds the granted resource.
func (f *fleet) witnesses(t *testing.T, m *marked) {
	t.Helper()
	witness := f.searcher(t, framework.Unique("witness"))
	cp := framework.CreatePermission(t, f.OCM, permissionOf(framework.Cluster1, grantsIn(m.back, witness.Subject, lists("", "configmaps", "a"))))
	f.Applied(t, cp.Name)
	witness.findsMarked(t, m, "ConfigMap back/a")
}

// revokesPermissions checks each way to revoke a permission: deletion, another subject and other rules.
func (f *fleet) revokesPermissions(t *testing.T, m *marked) {
	c := f.searcher(t, framework.Unique("revoked"))
	watching := framework.Must(c.OCM.SearchV1alpha1().FleetResources(metav1.NamespaceAll).Watch(t.Context(), metav1.ListOptions{
		LabelSelector: markKey + "=" + m.value, SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}))(t)
	defer watching.Stop()
	if event := nextOfAny(t, watching); event.Type != watch.Bookmark {
		t.Fatalf("event before the grant = %s, want only BOOKMARK", event.Type)
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
		t.Logf("%s takes %v; searches follow after %v, the watch after %v", what,
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
			return await.Poll(t.Context(), func(ctx context.Context) error {
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

// findsAppliedOnly checks that grants take effect only after the cluster has applied them, and only for that
// cluster.
func (f *fleet) findsAppliedOnly(t *testing.T, m *marked, other *reporter) {
	c := f.searcher(t, framework.Unique("waiting"))
	cp := framework.CreatePermission(t, f.OCM, permissionOf(other.name, grantsIn(m.shop, c.Subject, lists("", "configmaps"))))
	f.WorkOf(t, cp)
	// The effect of a later grant shows that the server has received the first one.
	elsewhere := framework.CreatePermission(t, f.OCM, permissionOf(framework.Cluster1, grantsIn(m.back, c.Subject, lists("", "configmaps", "a"))))
	f.Applied(t, elsewhere.Name)
	c.findsMarked(t, m, "ConfigMap back/a")
	f.ReportWork(t, cp, func(work *workv1.ManifestWork) { framework.MarkApplied(work, "applied") })
	want := m.of(t, "ConfigMap back/a")
	want[uidOf("ConfigMap", m.shop, "a")] = "ConfigMap"
	framework.Eventually(t, "the resources of the applied grant are found", func(ctx context.Context) error { return answersAre(ctx, c.OCM, markKey, m.value, want) })
	list := framework.Must(c.OCM.SearchV1alpha1().FleetResources(other.name).List(t.Context(), metav1.ListOptions{}))(t)
	if got := objectNames(list.Items); !slices.Equal(got, []string{uidOf("ConfigMap", m.shop, "a")}) {
		t.Errorf("resources on %s = %v", other.name, got)
	}
}

// findsOwnResources checks that the hub's agent reports the hub as local-cluster, and that callers find the resources
// that the hub allows them to list.
func (f *fleet) findsOwnResources(t *testing.T) {
	m := newMarked(t, f.HubClient)
	c, nobody := f.searcher(t, framework.Unique("on-hub")), f.searcher(t, framework.Unique("on-no-hub"))
	c.May(t, m.shop, listing("", []string{"configmaps"}), listing("", []string{"secrets"}))
	c.May(t, m.back, listing("apps", []string{"deployments", "replicasets"}), listing("", []string{"configmaps"}, "b"))
	// ClusterPermissions apply to managed clusters only.
	cp := framework.CreatePermission(t, f.OCM, permissionOf(framework.Cluster1, rbacv1alpha1.ClusterPermissionSpec{
		ClusterRole:        &rbacv1alpha1.ClusterRole{Rules: lists("*", "*")},
		ClusterRoleBinding: &rbacv1alpha1.ClusterRoleBinding{Subject: &nobody.Subject},
	}))
	f.Applied(t, cp.Name)
	want := []string{"ConfigMap shop/a", "ConfigMap shop/b", "Secret shop/s", "Deployment back/web", "ReplicaSet back/web-1", "ConfigMap back/b"}
	c.findsMarked(t, m, want...)
	framework.Eventually(t, "the ClusterPermission takes effect", func(ctx context.Context) error {
		found, err := search(ctx, nobody.OCM, textQuery("kind:Secret cluster:"+framework.Cluster1))
		if err == nil && found.Count == 0 {
			err = errors.New("no Secret of the cluster found")
		}
		return err
	})
	nobody.findsMarked(t, m)
	// ClusterNamespaces have the labels of their namespaces.
	query := fmt.Sprintf("cluster:%s label:%s=%s kind!=ClusterNamespace", localhub.HubClusterName, markKey, m.value)
	finds(t, f.OCM, query, slices.Collect(maps.Values(m.uids))...)
	framework.Eventually(t, "the Inventory of the hub is Reporting", func(ctx context.Context) error {
		found, err := f.OCM.SearchV1alpha1().Inventories(localhub.HubClusterName).Get(ctx, localhub.HubClusterName, metav1.GetOptions{})
		if err == nil && found.Status.State != searchv1alpha1.InventoryReporting {
			err = fmt.Errorf("status = %+v", found.Status)
		}
		return err
	})
}

// TestSearchIgnoresClusterPermissions checks that neither ClusterPermissions nor bindings of a cluster have an effect on
// searches without the feature gate.
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
	framework.Eventually(t, "the user may list ConfigMaps on the managed cluster", func(ctx context.Context) error {
		_, err := framework.Must(asUser, err)(t).CoreV1().ConfigMaps(m.shop).List(ctx, metav1.ListOptions{})
		return err
	})
	f.bindOnCluster(t, m.back, c.Subject, lists("", "configmaps"))
	f.awaitKnown(t, c.Name, m.back, accessv1alpha1.AccessAllowed)
	c.findsMarked(t, m)
	// Searches still follow the permissions on the hub.
	revoke := c.views(t, framework.Cluster1)
	keys := slices.DeleteFunc(slices.Collect(maps.Keys(m.uids)), func(key string) bool { return key == "Secret shop/s" || key == "Secret back/s" })
	c.findsMarked(t, m, keys...)
	revoke()
	c.findsMarked(t, m)
}
