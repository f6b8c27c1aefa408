package visibility_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	"open-cluster-management.io/hub-apiserver/test/await"
)

// deliveredUnderTest is the RBAC that ClusterPermissions have delivered to managed clusters.
type deliveredUnderTest struct {
	source *cachetesting.FakeControllerSource

	mu        sync.Mutex
	manifests map[string][]workv1.Manifest
}

func newDeliveredUnderTest() *deliveredUnderTest {
	return &deliveredUnderTest{source: cachetesting.NewFakeControllerSource(), manifests: map[string][]workv1.Manifest{}}
}

// config returns the configuration of a Compiler that follows the ManifestWorks.
func (d *deliveredUnderTest) config(t *testing.T, mode visibility.Mode) visibility.Config {
	t.Helper()
	informer := cache.NewSharedIndexInformer(d.source, &workv1.ManifestWork{}, 0, cache.Indexers{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		informer.RunWithContext(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return visibility.Config{Mode: mode, Works: informer, Delivered: func(_ context.Context, cluster string) ([]workv1.Manifest, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		return slices.Clone(d.manifests[cluster]), nil
	}}
}

// deliver replaces the manifests of a cluster.
func (d *deliveredUnderTest) deliver(t *testing.T, cluster string, documents ...string) {
	t.Helper()
	var manifests []workv1.Manifest
	for _, document := range documents {
		raw, err := yaml.ToJSON([]byte(document))
		if err != nil {
			t.Fatal(err)
		}
		manifests = append(manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: raw}})
	}
	d.mu.Lock()
	_, known := d.manifests[cluster]
	d.manifests[cluster] = manifests
	generation := int64(len(manifests) + 1)
	d.mu.Unlock()
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "w", Generation: generation}}
	if known {
		d.source.Modify(work)
	} else {
		d.source.Add(work)
	}
}

// remove deletes the ManifestWork of a cluster.
func (d *deliveredUnderTest) remove(cluster string) {
	d.mu.Lock()
	delete(d.manifests, cluster)
	d.mu.Unlock()
	d.source.Delete(&workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "w"}})
}

const (
	deliveredRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: r, namespace: apps}
rules: [{apiGroups: [""], resources: [pods, secrets], resourceNames: [x], verbs: [list]}]`
	otherRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: r, namespace: apps}
rules: [{apiGroups: [""], resources: ["*"], verbs: [list]}]`
	askedRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: pods}`
	ownRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: own}
rules: [{apiGroups: [""], resources: ["*"], verbs: [list]}]`
	emptyRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: pods}
rules: []`
)

func deliveredBinding(role, subject string) string {
	return `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: b, namespace: apps}
roleRef: {apiGroup: rbac.authorization.k8s.io, ` + role + `}
subjects: [` + subject + `]`
}

func TestClusterPermissions(t *testing.T) {
	const (
		toAnn = "{apiGroup: rbac.authorization.k8s.io, kind: User, name: ann}"
		role  = "kind: Role, name: r"
		pods  = "kind: ClusterRole, name: pods"
	)
	object := func(cluster, resource, namespace, name string) visibility.Object {
		return named(name, visibility.Class{Cluster: cluster, Resource: resource, Namespace: namespace})
	}
	system := &user.DefaultInfo{Name: "system:serviceaccount:apps:robot", Groups: []string{"system:serviceaccounts", user.AllAuthenticated}}
	team := &user.DefaultInfo{Name: "tom", Groups: []string{"team", user.AllAuthenticated}}
	agent := &user.DefaultInfo{Name: "agent", Groups: []string{"open-cluster-management:c", user.AllAuthenticated}}
	for _, test := range []struct {
		name      string
		documents []string
		caller    user.Info
		object    visibility.Object
		allowed   bool
	}{
		{"the name", []string{deliveredRole, deliveredBinding(role, toAnn)}, ann, object("c", "pods", "apps", "x"), true},
		{"a Secret that a rule allows", []string{deliveredRole, deliveredBinding(role, toAnn)}, ann, object("c", "secrets", "apps", "x"), true},
		{"another name", []string{deliveredRole, deliveredBinding(role, toAnn)}, ann, object("c", "pods", "apps", "other"), false},
		{"another namespace", []string{deliveredRole, deliveredBinding(role, toAnn)}, ann, object("c", "pods", "other", "x"), false},
		{"another cluster", []string{deliveredRole, deliveredBinding(role, toAnn)}, ann, object("d", "pods", "apps", "x"), false},
		{"the hub", []string{deliveredRole, deliveredBinding(role, toAnn)}, ann, named("x", hub("", "pods", "apps")), false},
		{"another user", []string{deliveredRole, deliveredBinding(role, toAnn)}, ben, object("c", "pods", "apps", "x"), false},
		{"by group", []string{deliveredRole, deliveredBinding(role, "{kind: Group, name: team}")}, team, object("c", "pods", "apps", "x"), true},
		{"authenticated users of the cluster", []string{deliveredRole, deliveredBinding(role, "{kind: Group, name: 'system:authenticated'}")}, ben, object("c", "pods", "apps", "x"), false},
		{"an agent exists on the hub only", []string{deliveredRole, deliveredBinding(role, "{kind: Group, name: 'open-cluster-management:c'}")}, agent, object("c", "pods", "apps", "x"), false},
		{"an account of the cluster with the name of an account of the hub", []string{deliveredRole, deliveredBinding(role, "{kind: ServiceAccount, name: robot, namespace: apps}")}, system, object("c", "pods", "apps", "x"), false},
		{"a system group of the cluster with the name of a group of the hub", []string{deliveredRole, deliveredBinding(role, "{kind: Group, name: 'system:serviceaccounts'}")}, system, object("c", "pods", "apps", "x"), false},
		{"a default ClusterRole that is not delivered", []string{deliveredBinding(pods, toAnn)}, ann, object("c", "pods", "apps", "other"), true},
		{"a role that only the hub has", []string{deliveredBinding("kind: ClusterRole, name: own", toAnn)}, ann, object("c", "pods", "apps", "other"), false},
		{"a role without the field rules", []string{askedRole, deliveredBinding(pods, toAnn)}, ann, object("c", "pods", "apps", "other"), true},
		{"a delivered role hides the role of the hub", []string{emptyRole, deliveredBinding(pods, toAnn)}, ann, object("c", "pods", "apps", "other"), false},
		{"a role that differs between ManifestWorks", []string{deliveredRole, otherRole, deliveredBinding(role, toAnn)}, ann, object("c", "pods", "apps", "x"), false},
		{"a role that is equal in two ManifestWorks", []string{deliveredRole, deliveredRole, deliveredBinding(role, toAnn)}, ann, object("c", "pods", "apps", "x"), true},
		{"a missing Role", []string{deliveredBinding("kind: Role, name: pods", toAnn)}, ann, object("c", "pods", "apps", "x"), false},
		{"a manifest of another kind", []string{"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: r}", deliveredBinding(role, toAnn)}, ann, object("c", "pods", "apps", "x"), false},
		{"rules that cannot be read", []string{deliveredRole + "\naggregationRule: 7", deliveredBinding(role, toAnn)}, ann, object("c", "pods", "apps", "x"), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newDeliveredUnderTest()
			d.deliver(t, "c", test.documents...)
			h := newHub(append(readsPods(t), visibilitytest.Parse(t, ownRole)...))
			h.start(t, d.config(t, visibility.RBAC))
			if got := h.scope(t, test.caller).Allows(test.object); got != test.allowed {
				t.Errorf("Allows() = %v, want %v", got, test.allowed)
			}
		})
	}
}

func TestDeliveredChanges(t *testing.T) {
	for _, mode := range []visibility.Mode{visibility.RBAC, visibility.Reviews} {
		t.Run(string(mode), func(t *testing.T) {
			d := newDeliveredUnderTest()
			h := newHub(readsPods(t))
			h.start(t, d.config(t, mode))
			pod := named("x", visibility.Class{Cluster: "c", Resource: "pods", Namespace: "apps"})
			allows := func() bool { return h.scope(t, ann).Allows(pod) }
			if allows() {
				t.Fatal("Allows() before delivery = true, want false")
			}
			changed, stop := h.Subscribe(ann)
			defer stop()
			d.deliver(t, "c", deliveredBinding("kind: ClusterRole, name: pods", "{kind: User, name: ann}"))
			notified(t, "a binding was delivered", changed)
			await.True(t, "the delivered binding allows ann", allows)
			h.grant(t, "get")
			await.True(t, "the role of the hub without list denies ann", func() bool { return !allows() })
			h.grant(t, "list")
			await.True(t, "the role of the hub with list allows ann", allows)
			d.deliver(t, "c")
			await.True(t, "ann is denied after the removal of the binding", func() bool { return !allows() })
		})
	}
}

// TestDeletionDuringTheStart checks that the permissions on a cluster end if its last ManifestWork is deleted while the Compiler
// reads another cluster at the start.
func TestDeletionDuringTheStart(t *testing.T) {
	d := newDeliveredUnderTest()
	for _, cluster := range []string{"c", "d"} {
		d.deliver(t, cluster, deliveredRole, deliveredBinding("kind: Role, name: r", "{apiGroup: rbac.authorization.k8s.io, kind: User, name: ann}"))
	}
	config := d.config(t, visibility.RBAC)
	deleted := make(chan struct{})
	if _, err := config.Works.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(any) { close(deleted) }}); err != nil {
		t.Fatal(err)
	}
	var reads atomic.Int64
	var first, second string
	delivered := config.Delivered
	config.Delivered = func(ctx context.Context, cluster string) ([]workv1.Manifest, error) {
		switch reads.Add(1) {
		case 1:
			first = cluster
		case 2:
			second = cluster
			d.remove(first)
			select {
			case <-deleted:
			case <-ctx.Done():
			}
		}
		return delivered(ctx, cluster)
	}
	h := newHub(readsPods(t))
	h.start(t, config)
	allows := func(cluster string) bool {
		return h.scope(t, ann).Allows(named("x", visibility.Class{Cluster: cluster, Resource: "pods", Namespace: "apps"}))
	}
	await.True(t, "ann is denied on the cluster whose ManifestWork was deleted", func() bool { return !allows(first) })
	if !allows(second) {
		t.Error("Allows() on the other cluster = false, want true")
	}
}
