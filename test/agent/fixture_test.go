package agent_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/hub-apiserver/pkg/agent"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// eventually is await.Eventually.
var eventually = await.Eventually[func(context.Context) error]

// fixture is one real cluster that is both the hub and the managed cluster.
type fixture struct {
	// control is the control plane.
	control *localhub.Cluster
	// config has the credentials of an administrator. account has the credentials of the agent on
	// the managed cluster, which has only the roles in artifacts/agent.
	config, account *rest.Config
	kube            kubernetes.Interface
	ocm             versioned.Interface

	names sync.Map
	runs  atomic.Int32
}

// own starts a control plane for a test and its subtests.
func own(t testing.TB) *fixture {
	t.Helper()
	return framework.Must(newFixture(t.Context(), framework.OwnCluster(t, localhub.ClusterOptions{Name: "cluster"})))(t)
}

func newFixture(ctx context.Context, cluster *localhub.Cluster) (*fixture, error) {
	grants, err := localhub.ReadManifests("testdata")
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{"managed", "hub"} {
		objects, err := localhub.ReadManifests(filepath.Join(localhub.Root(), "artifacts", "agent", dir))
		if err != nil {
			return nil, err
		}
		for _, object := range objects {
			// The CRD is left out, because the agent must be able to install it.
			if object.GetKind() != "CustomResourceDefinition" {
				grants = append(grants, object)
			}
		}
	}
	if err := cluster.Apply(ctx, grants...); err != nil {
		return nil, err
	}
	config := rest.CopyConfig(cluster.AdminConfig())
	config.QPS, config.Burst = -1, 0
	f := &fixture{control: cluster, config: config}
	if f.account, err = cluster.ServiceAccountConfig(ctx, "open-cluster-management-agent", "agent"); err != nil {
		return nil, err
	}
	if f.kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if f.ocm, err = versioned.NewForConfig(config); err != nil {
		return nil, err
	}
	return f, await.Poll(ctx, func(ctx context.Context) error {
		_, works := f.ocm.WorkV1().ManifestWorks("default").List(ctx, metav1.ListOptions{})
		_, accounts := f.ocm.AuthenticationV1beta1().ManagedServiceAccounts("default").List(ctx, metav1.ListOptions{})
		_, namespaces := f.ocm.RbacV1alpha1().ClusterNamespaces("default").List(ctx, metav1.ListOptions{})
		return errors.Join(works, accounts, namespaces)
	})
}

// cluster is one managed cluster. Its namespace, which has the name of the test, contains both the
// ManifestWorks and the objects that they apply.
type cluster struct {
	// grace is the EvictionGracePeriod of the next agent.
	grace time.Duration
	*fixture
	t    testing.TB
	name string
	// verify is the TokenVerifyInterval of the next agent, and clock is its clock.
	verify time.Duration
	clock  clock.WithTicker
	// feedbackPaths are the FeedbackJSONPaths of the next agent.
	feedbackPaths []string
	// noAccounts disables ManagedServiceAccounts for the next agent.
	noAccounts bool
	// accountNamespace is the ServiceAccountNamespace of the next agent.
	accountNamespace string
	// ca returns the CA bundle of the managed cluster to the next agent.
	ca func() ([]byte, error)
	// exchanges intercepts the agent's requests to the managed cluster, and hubExchanges its
	// requests to the hub.
	exchanges, hubExchanges atomic.Pointer[exchange]
	// reportsNamespaces is set in tests of ClusterNamespaces. In other tests the hub does not allow
	// the agent to write them, and hubExchanges does not intercept requests for them.
	reportsNamespaces bool
	agent             *agent.Agent
	stop              func()
}

func (f *fixture) cluster(t testing.TB) *cluster {
	t.Helper()
	name := strings.ToLower(strings.ReplaceAll(t.Name()[strings.LastIndex(t.Name(), "/")+1:], "_", "-"))
	if _, again := f.names.LoadOrStore(name, true); again {
		// A benchmark runs more than once.
		name = fmt.Sprintf("%s-%d", name, f.runs.Add(1))
	}
	return f.named(t, name)
}

// named is like cluster, with the given name.
func (f *fixture) named(t testing.TB, name string) *cluster {
	t.Helper()
	c := &cluster{fixture: f, t: t, name: name}
	if _, err := f.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.bind("ClusterRole", "open-cluster-management:managedcluster:work")
	c.bind("ClusterRole", "open-cluster-management:managedcluster:serviceaccounts")
	t.Cleanup(func() { c.kill() })
	return c
}

func (c *cluster) user() string { return "system:open-cluster-management:" + c.name + ":agent" }

// bind binds the agent to a role in its namespace on the hub.
func (c *cluster) bind(kind, role string) {
	c.t.Helper()
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: c.user()}},
	}
	if _, err := c.kube.RbacV1().RoleBindings(c.name).Create(c.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// exchange returns the response to a request. It can call send to forward the request.
type exchange func(request *http.Request, send func() (*http.Response, error)) (*http.Response, error)

type transport struct {
	hook *atomic.Pointer[exchange]
	next http.RoundTripper
	// unseen, if it is not empty, is a part of the paths of requests that bypass the hook.
	unseen string
}

func (w transport) RoundTrip(request *http.Request) (*http.Response, error) {
	hidden := w.unseen != "" && strings.Contains(request.URL.Path, w.unseen)
	if hook := w.hook.Load(); hook != nil && !hidden {
		return (*hook)(request, func() (*http.Response, error) { return w.next.RoundTrip(request) })
	}
	return w.next.RoundTrip(request)
}

// onExchange makes a hook intercept the agent's requests to the managed cluster. Nil removes the
// hook.
func (c *cluster) onExchange(hook exchange) {
	if hook == nil {
		c.exchanges.Store(nil)
		return
	}
	c.exchanges.Store(&hook)
}

// onRequest calls a hook before every request to the managed cluster. If the hook returns an error,
// the request fails.
func (c *cluster) onRequest(hook func(*http.Request) error) {
	if hook == nil {
		c.onExchange(nil)
		return
	}
	c.onExchange(func(request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if err := hook(request); err != nil {
			return nil, err
		}
		return send()
	})
}

// run starts the agent.
func (c *cluster) run() {
	c.t.Helper()
	hub, err := c.control.UserConfig(c.user())
	if err != nil {
		c.t.Fatal(err)
	}
	managed := rest.CopyConfig(c.account)
	for _, config := range []*rest.Config{hub, managed} {
		config.QPS, config.Burst = -1, 0
	}
	managed.WrapTransport = func(next http.RoundTripper) http.RoundTripper { return transport{hook: &c.exchanges, next: next} }
	unseen := "/clusternamespaces"
	if c.reportsNamespaces {
		unseen = ""
	}
	hub.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		return transport{hook: &c.hubExchanges, next: next, unseen: unseen}
	}
	config := &agent.Config{Settings: agent.DefaultSettings(), Hub: hub, Managed: managed, Clock: c.clock, ManagedCA: c.ca}
	config.ClusterName, config.AgentID, config.HealthBindAddress = c.name, c.name, ""
	config.Workers, config.WorkersPerTenant, config.PriorityWorkers = 4, 4, 2
	config.EvictionGracePeriod = c.grace
	config.ServiceAccounts, config.FeedbackJSONPaths = !c.noAccounts, c.feedbackPaths
	config.TokenVerifyInterval = cmp.Or(c.verify, config.TokenVerifyInterval)
	config.ServiceAccountNamespace = cmp.Or(c.accountNamespace, config.ServiceAccountNamespace)
	a, err := config.New()
	if err != nil {
		c.t.Fatal(err)
	}
	c.agent = a
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	c.stop = func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				c.t.Errorf("Run() of the agent = %v, want nil", err)
			}
		case <-time.After(await.Patience):
			c.t.Error("Run() of the agent did not return after its context was canceled")
		}
	}
}

// kill stops the agent if it runs.
func (c *cluster) kill() {
	if c.stop != nil {
		c.stop()
		c.stop = nil
	}
}

func (c *cluster) works() interface {
	Get(context.Context, string, metav1.GetOptions) (*workv1.ManifestWork, error)
	Create(context.Context, *workv1.ManifestWork, metav1.CreateOptions) (*workv1.ManifestWork, error)
	Update(context.Context, *workv1.ManifestWork, metav1.UpdateOptions) (*workv1.ManifestWork, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
	Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*workv1.ManifestWork, error)
} {
	return c.ocm.WorkV1().ManifestWorks(c.name)
}

// manifest converts YAML to a manifest. NS is a placeholder for the namespace of the test.
func (c *cluster) manifest(text string) workv1.Manifest {
	c.t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(strings.ReplaceAll(text, "NS", c.name)))
	if err != nil {
		c.t.Fatal(err)
	}
	return workv1.Manifest{RawExtension: runtime.RawExtension{Raw: raw}}
}

func configMap(name, value string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: NS}, data: {key: %s}}`, name, value)
}

// create creates a ManifestWork with the name of the test plus suffix.
func (c *cluster) create(suffix string, change func(*workv1.ManifestWorkSpec), manifests ...string) string {
	c.t.Helper()
	return c.createOwned(nil, suffix, change, manifests...)
}

// createOwned is like create, for a ManifestWork with owners.
func (c *cluster) createOwned(owners []metav1.OwnerReference, suffix string, change func(*workv1.ManifestWorkSpec), manifests ...string) string {
	c.t.Helper()
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: c.name + suffix, OwnerReferences: owners}}
	for _, text := range manifests {
		work.Spec.Workload.Manifests = append(work.Spec.Workload.Manifests, c.manifest(text))
	}
	if change != nil {
		change(&work.Spec)
	}
	if _, err := c.works().Create(c.t.Context(), work, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	return work.Name
}

// update changes the spec of a ManifestWork.
func (c *cluster) update(name string, change func(*workv1.ManifestWorkSpec)) {
	c.t.Helper()
	eventually(c.t, "ManifestWork "+name+" is updated", func(ctx context.Context) error {
		work, err := c.works().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(&work.Spec)
		_, err = c.works().Update(ctx, work, metav1.UpdateOptions{})
		return err
	})
}

func (c *cluster) replace(name string, manifests ...string) {
	c.t.Helper()
	c.update(name, func(spec *workv1.ManifestWorkSpec) {
		spec.Workload.Manifests = nil
		for _, text := range manifests {
			spec.Workload.Manifests = append(spec.Workload.Manifests, c.manifest(text))
		}
	})
}

func (c *cluster) delete(name string) {
	c.t.Helper()
	if err := c.works().Delete(c.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// condition waits until a condition of a ManifestWork has a status for the current generation, and
// returns the ManifestWork.
func (c *cluster) condition(name, kind string, status metav1.ConditionStatus) *workv1.ManifestWork {
	c.t.Helper()
	var work *workv1.ManifestWork
	eventually(c.t, fmt.Sprintf("condition %s of ManifestWork %s is %s", kind, name, status), func(ctx context.Context) error {
		var err error
		if work, err = c.works().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		got := meta.FindStatusCondition(work.Status.Conditions, kind)
		if got == nil || got.Status != status || got.ObservedGeneration != work.Generation {
			text, _ := json.Marshal(work.Status)
			return fmt.Errorf("generation = %d, status = %s", work.Generation, text)
		}
		return nil
	})
	return work
}

func (c *cluster) gone(name string) {
	c.t.Helper()
	eventually(c.t, "ManifestWork "+name+" does not exist", func(ctx context.Context) error {
		work, err := c.works().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		text, _ := json.Marshal(work.Status)
		return fmt.Errorf("Get() = %v with status %s, want NotFound", err, text)
	})
	if _, err := c.record(name); !apierrors.IsNotFound(err) {
		c.t.Fatalf("Get(AppliedManifestWork of %s) = %v, want NotFound", name, err)
	}
}

func (c *cluster) record(work string) (*workv1.AppliedManifestWork, error) {
	return c.ocm.WorkV1().AppliedManifestWorks().Get(c.t.Context(), agent.HubHash(c.config.Host)+"-"+work, metav1.GetOptions{})
}

func (c *cluster) configMap(name string) (*corev1.ConfigMap, error) {
	return c.kube.CoreV1().ConfigMaps(c.name).Get(c.t.Context(), name, metav1.GetOptions{})
}

// hasConfigMap waits until a ConfigMap has a value, and returns the ConfigMap.
func (c *cluster) hasConfigMap(name, value string) *corev1.ConfigMap {
	c.t.Helper()
	var got *corev1.ConfigMap
	eventually(c.t, "ConfigMap "+name+" has the value "+value, func(context.Context) error {
		var err error
		if got, err = c.configMap(name); err != nil {
			return err
		}
		if got.Data["key"] != value {
			return fmt.Errorf("data = %v, want key=%s", got.Data, value)
		}
		return nil
	})
	return got
}

func (c *cluster) noConfigMap(name string) {
	c.t.Helper()
	eventually(c.t, "ConfigMap "+name+" does not exist", func(context.Context) error {
		_, err := c.configMap(name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("Get(ConfigMap %s) = %v, want NotFound", name, err)
	})
}

func (c *cluster) createConfigMap(name, value string) *corev1.ConfigMap {
	c.t.Helper()
	created, err := c.kube.CoreV1().ConfigMaps(c.name).Create(c.t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"key": value},
	}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return created
}
