package agent_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	rbacclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/rbac/v1alpha1"
)

// namespacesRole is the role of artifacts/agent/hub that reporting takes.
const namespacesRole = "open-cluster-management:managedcluster:namespaces"

// TestNamespaces runs the agent with exactly the permissions that reporting
// namespaces takes: what works take is not there. The managed cluster is the one
// of all subtests, which run one after another, so that nothing but the subtest
// changes its namespaces.
func TestNamespaces(t *testing.T) {
	f := newFixture(t)
	if err := f.kube.RbacV1().ClusterRoleBindings().Delete(t.Context(), "open-cluster-management:agent:apply", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]func(*testing.T, *cluster){
		"ns-followed":     testNamespaceFollowed,
		"ns-terminating":  testNamespaceTerminating,
		"ns-put-back":     testReportPutBack,
		"ns-restart":      testNamespacesRestart,
		"ns-idle":         testIdleNamespaces,
		"ns-elsewhere":    testReportElsewhere,
		"ns-outage":       testNamespacesOutage,
		"ns-lost-answers": testLostAnswers,
		"ns-not-listed":   testNamespacesNotListed,
		"ns-not-served":   testReportsNotServed,
		"ns-not-allowed":  testReportsNotAllowed,
		"ns-late-write":   testReportsNotWritable,
	} {
		t.Run(name, func(t *testing.T) {
			c := f.cluster(t)
			c.reportsNamespaces = true
			test(t, c)
		})
	}
}

// grantReports lets the agent report.
func (c *cluster) grantReports() {
	c.t.Helper()
	c.bind("ClusterRole", namespacesRole)
}

func (c *cluster) reports() rbacclient.ClusterNamespaceInterface {
	return c.ocm.RbacV1alpha1().ClusterNamespaces(c.name)
}

// createNamespace creates a namespace of the managed cluster, named after the
// test plus suffix.
func (c *cluster) createNamespace(suffix string, labels map[string]string) *corev1.Namespace {
	c.t.Helper()
	namespace, err := c.kube.CoreV1().Namespaces().Create(c.t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: c.name + suffix, Labels: labels, Annotations: map[string]string{"secret": "of the managed cluster"}},
	}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return namespace
}

func (c *cluster) patchNamespace(name, patch string) {
	c.t.Helper()
	if _, err := c.kube.CoreV1().Namespaces().Patch(c.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) labelNamespace(name, labels string) {
	c.t.Helper()
	c.patchNamespace(name, `{"metadata":{"labels":`+labels+`}}`)
}

// deleteNamespace deletes a namespace and waits until it is gone.
func (c *cluster) deleteNamespace(name string) {
	c.t.Helper()
	if err := c.kube.CoreV1().Namespaces().Delete(c.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
	eventually(c.t, "the namespace is gone", func(ctx context.Context) error {
		_, err := c.kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is still there (%v)", err)
	})
}

// isReported waits until the report of a namespace says what the namespace is,
// and returns it.
func (c *cluster) isReported(name string) *v1alpha1.ClusterNamespace {
	c.t.Helper()
	var report *v1alpha1.ClusterNamespace
	eventually(c.t, name+" is reported", func(ctx context.Context) error {
		namespace, err := c.kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if report, err = c.reports().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if report.Spec.NamespaceUID != namespace.UID || !maps.Equal(report.Labels, namespace.Labels) {
			return fmt.Errorf("report of %s with labels %v; namespace %s has %v", report.Spec.NamespaceUID, report.Labels, namespace.UID, namespace.Labels)
		}
		return nil
	})
	return report
}

// allReported waits until the reports are those of the namespaces that there are.
func (c *cluster) allReported() {
	c.t.Helper()
	eventually(c.t, "all namespaces are reported", func(ctx context.Context) error {
		namespaces, err := c.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		reports, err := c.reports().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		want, got := map[string]string{}, map[string]string{}
		for _, namespace := range namespaces.Items {
			if namespace.DeletionTimestamp == nil {
				want[namespace.Name] = fmt.Sprint(namespace.UID, namespace.Labels)
			}
		}
		for _, report := range reports.Items {
			got[report.Name] = fmt.Sprint(report.Spec.NamespaceUID, report.Labels)
		}
		if !maps.Equal(want, got) {
			return fmt.Errorf("the hub has %v, the cluster %v", got, want)
		}
		return nil
	})
}

func (c *cluster) notReported(name string) {
	c.t.Helper()
	eventually(c.t, name+" is not reported", func(ctx context.Context) error {
		_, err := c.reports().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it still is (%v)", err)
	})
}

// isReady waits until the agent is ready.
func (c *cluster) isReady() {
	c.t.Helper()
	eventually(c.t, "the agent is ready", func(context.Context) error { return c.agent.Ready() })
}

// requests are those to the hub about reports, without watches.
type requests struct {
	mu   sync.Mutex
	made []string
}

// recordReports records them from now on.
func (c *cluster) recordReports() *requests {
	r := &requests{}
	c.onHubRequest(func(request *http.Request) error {
		if request.URL.Query().Get("watch") == "" && isAboutReports(request) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.made = append(r.made, request.Method+" "+path.Base(request.URL.Path))
		}
		return nil
	})
	return r
}

func isAboutReports(request *http.Request) bool {
	return strings.Contains(request.URL.Path, "/clusternamespaces")
}

// list returns the requests so far, each as the method and what it is about.
func (r *requests) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.made)
}

func (r *requests) writes() []string {
	return slices.DeleteFunc(r.list(), func(request string) bool { return strings.HasPrefix(request, http.MethodGet) })
}

// testNamespaceFollowed: reports are what the namespaces are, those that were
// there before the agent included.
func testNamespaceFollowed(t *testing.T, c *cluster) {
	c.grantReports()
	name := c.createNamespace("-a", map[string]string{"team": "a", "foo.com/managed-state": "managed"}).Name
	c.run()
	c.isReady()
	c.allReported()
	report := c.isReported(name)
	if want := map[string]string{"team": "a", "foo.com/managed-state": "managed", corev1.LabelMetadataName: name}; !maps.Equal(report.Labels, want) || len(report.Annotations) != 0 {
		t.Errorf("labels %v, annotations %v", report.Labels, report.Annotations)
	}
	c.labelNamespace(name, `{"team":"b","foo.com/managed-state":null,"new":""}`)
	changed := c.isReported(name)
	if want := map[string]string{"team": "b", "new": "", corev1.LabelMetadataName: name}; !maps.Equal(changed.Labels, want) || changed.UID != report.UID {
		t.Errorf("labels %v, report %s after %s", changed.Labels, changed.UID, report.UID)
	}
	c.deleteNamespace(name)
	c.notReported(name)
	again := c.createNamespace("-a", nil)
	if report := c.isReported(name); report.Spec.NamespaceUID != again.UID || report.Spec.NamespaceUID == changed.Spec.NamespaceUID {
		t.Errorf("report of %s, before %s", report.Spec.NamespaceUID, changed.Spec.NamespaceUID)
	}
	c.allReported()
}

// testNamespaceTerminating: a namespace that is being deleted is none, however
// long that takes.
func testNamespaceTerminating(t *testing.T, c *cluster) {
	c.grantReports()
	name := c.createNamespace("-a", nil).Name
	stuck := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "stuck", Finalizers: []string{"example.com/stuck"}}}
	if _, err := c.kube.CoreV1().ConfigMaps(name).Create(t.Context(), stuck, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.run()
	c.isReported(name)
	if err := c.kube.CoreV1().Namespaces().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.notReported(name)
	// Neither a change of it nor a restart brings it back.
	c.labelNamespace(name, `{"team":"a"}`)
	c.kill()
	c.run()
	c.isReported(c.createNamespace("-marker", nil).Name)
	c.allReported()
	if namespace, err := c.kube.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}); err != nil || namespace.DeletionTimestamp == nil {
		t.Fatalf("the namespace is not terminating (%v)", err)
	}
	if _, err := c.kube.CoreV1().ConfigMaps(name).Patch(t.Context(), stuck.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace can be made again", func(ctx context.Context) error {
		_, err := c.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	})
	c.isReported(name)
}

// testReportPutBack: what anybody else does to reports is undone, but for what
// the agent has no say in.
func testReportPutBack(t *testing.T, c *cluster) {
	c.grantReports()
	name := c.createNamespace("-a", map[string]string{"team": "a"}).Name
	c.run()
	report := c.isReported(name)
	for what, patch := range map[string]string{
		"another value": `{"metadata":{"labels":{"team":"b"}}}`,
		"another label": `{"metadata":{"labels":{"more":"x"}}}`,
		"no labels":     `{"metadata":{"labels":null}}`,
		"another UID":   `{"spec":{"namespaceUID":"x"}}`,
		"no spec":       `{"spec":null}`,
	} {
		edited, err := c.reports().Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if edited.ResourceVersion == report.ResourceVersion {
			t.Fatalf("%s: nothing was edited", what)
		}
		if report = c.isReported(name); report.ResourceVersion == edited.ResourceVersion {
			t.Fatalf("%s: reported as edited", what)
		}
	}
	if _, err := c.reports().Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"note":"of a person"},"labels":{"team":"b"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if report := c.isReported(name); report.Annotations["note"] != "of a person" {
		t.Errorf("annotations are %v", report.Annotations)
	}
	if err := c.reports().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if again := c.isReported(name); again.UID == report.UID {
		t.Error("the report was not deleted")
	}
	invented := &v1alpha1.ClusterNamespace{ObjectMeta: metav1.ObjectMeta{Name: c.name + "-invented", Labels: map[string]string{"team": "a"}}}
	if _, err := c.reports().Create(t.Context(), invented, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.notReported(invented.Name)
	c.allReported()
}

// testNamespacesRestart: an agent that was away writes what has changed, and
// nothing else.
func testNamespacesRestart(t *testing.T, c *cluster) {
	c.grantReports()
	labelled, deleted := c.createNamespace("-labelled", nil).Name, c.createNamespace("-deleted", nil).Name
	remade, edited := c.createNamespace("-remade", nil).Name, c.createNamespace("-edited", nil).Name
	c.createNamespace("-same", map[string]string{"a": "b"})
	c.run()
	c.allReported()
	c.kill()
	c.labelNamespace(labelled, `{"team":"a"}`)
	c.deleteNamespace(deleted)
	c.deleteNamespace(remade)
	c.createNamespace("-remade", nil)
	c.createNamespace("-new", nil)
	if _, err := c.reports().Patch(t.Context(), edited, types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"b"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	hub := c.recordReports()
	c.run()
	c.allReported()
	// What comes later would have come after what must not come.
	c.isReported(c.createNamespace("-marker", nil).Name)
	got := hub.writes()
	slices.Sort(got)
	want := []string{"DELETE " + deleted, "POST clusternamespaces", "POST clusternamespaces", "PUT " + edited, "PUT " + labelled, "PUT " + remade}
	if !slices.Equal(got, want) {
		t.Errorf("writes are %v, want %v", got, want)
	}
}

// testIdleNamespaces: what does not change what is reported takes no request,
// and a restart takes no write.
func testIdleNamespaces(t *testing.T, c *cluster) {
	c.grantReports()
	var names []string
	for i := range 20 {
		names = append(names, c.createNamespace(fmt.Sprintf("-%d", i), map[string]string{"team": "a"}).Name)
	}
	c.run()
	c.isReady()
	c.allReported()
	managed, _ := c.count()
	hub := c.recordReports()
	for _, name := range names {
		c.patchNamespace(name, `{"metadata":{"annotations":{"a":"b"}}}`)
		if _, err := c.reports().Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.isReported(c.createNamespace("-marker", nil).Name)
	if got := hub.list(); len(got) != 1 || got[0] != "POST clusternamespaces" {
		t.Errorf("idle: %s", got)
	}
	c.kill()
	hub = c.recordReports()
	c.run()
	c.isReady()
	c.isReported(c.createNamespace("-marker-2", nil).Name)
	if got := hub.writes(); len(got) != 1 {
		t.Errorf("restart: %s", got)
	}
	if managed.writes.Load() != 0 {
		t.Errorf("%d writes on the managed cluster", managed.writes.Load())
	}
}
