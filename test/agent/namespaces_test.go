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

// namespacesRole is the ClusterRole in artifacts/agent/hub that allows an agent to report namespaces.
const namespacesRole = "open-cluster-management:managedcluster:namespaces"

// TestNamespaces runs the agent with only the permissions that reporting namespaces requires, without
// the permissions for ManifestWorks. The subtests share the managed cluster. They run one after
// another, so that no other subtest changes its namespaces.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	f := shared(t)
	if err := f.kube.RbacV1().ClusterRoleBindings().Delete(t.Context(), "open-cluster-management:agent:apply", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]func(*testing.T, *cluster){
		"ns-reported":       testNamespaceReported,
		"ns-terminating":    testNamespaceTerminating,
		"ns-edits-reverted": testReportEditsReverted,
		"ns-restart":        testNamespacesRestart,
		"ns-idle":           testIdleNamespaces,
		"ns-other-hub-ns":   testOtherHubNamespaces,
		"ns-outage":         testNamespacesOutage,
		"ns-lost-responses": testLostResponses,
		"ns-not-listed":     testNamespacesNotListed,
		"ns-not-served":     testReportsNotServed,
		"ns-not-allowed":    testReportsNotAllowed,
		"ns-not-writable":   testReportsNotWritable,
	} {
		t.Run(name, func(t *testing.T) {
			c := f.cluster(t)
			c.reportsNamespaces = true
			test(t, c)
		})
	}
}

// grantReports allows the agent to report namespaces.
func (c *cluster) grantReports() {
	c.t.Helper()
	c.bind("ClusterRole", namespacesRole)
}

func (c *cluster) reports() rbacclient.ClusterNamespaceInterface {
	return c.ocm.RbacV1alpha1().ClusterNamespaces(c.name)
}

// createNamespace creates a namespace on the managed cluster with the name of the test plus suffix.
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

// deleteNamespace deletes a namespace and waits until it does not exist.
func (c *cluster) deleteNamespace(name string) {
	c.t.Helper()
	if err := c.kube.CoreV1().Namespaces().Delete(c.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
	eventually(c.t, "namespace "+name+" does not exist", func(ctx context.Context) error {
		_, err := c.kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("Get() = %v, want NotFound", err)
	})
}

// isReported waits until the ClusterNamespace of a namespace contains its UID and labels, and returns
// the ClusterNamespace.
func (c *cluster) isReported(name string) *v1alpha1.ClusterNamespace {
	c.t.Helper()
	var report *v1alpha1.ClusterNamespace
	eventually(c.t, "ClusterNamespace "+name+" contains the UID and labels of the namespace", func(ctx context.Context) error {
		namespace, err := c.kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if report, err = c.reports().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if report.Spec.NamespaceUID != namespace.UID || !maps.Equal(report.Labels, namespace.Labels) {
			return fmt.Errorf("UID = %s, labels = %v, want %s, %v", report.Spec.NamespaceUID, report.Labels, namespace.UID, namespace.Labels)
		}
		return nil
	})
	return report
}

// allReported waits until the ClusterNamespaces match the namespaces that are not being deleted.
func (c *cluster) allReported() {
	c.t.Helper()
	eventually(c.t, "the ClusterNamespaces match the namespaces", func(ctx context.Context) error {
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
			return fmt.Errorf("ClusterNamespaces = %v, want %v", got, want)
		}
		return nil
	})
}

func (c *cluster) notReported(name string) {
	c.t.Helper()
	eventually(c.t, "ClusterNamespace "+name+" does not exist", func(ctx context.Context) error {
		_, err := c.reports().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("Get() = %v, want NotFound", err)
	})
}

func (c *cluster) isReady() {
	c.t.Helper()
	eventually(c.t, "the agent is ready", func(context.Context) error { return c.agent.Ready() })
}

// requests records requests for ClusterNamespaces to the hub, without watches.
type requests struct {
	mu   sync.Mutex
	made []string
}

// recordReports starts to record requests for ClusterNamespaces.
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

// list returns the recorded requests, each as the method and the last element of the path.
func (r *requests) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.made)
}

func (r *requests) writes() []string {
	return slices.DeleteFunc(r.list(), func(request string) bool { return strings.HasPrefix(request, http.MethodGet) })
}

// testNamespaceReported checks that the agent reports namespaces that existed before it started, and
// later changes.
func testNamespaceReported(t *testing.T, c *cluster) {
	c.grantReports()
	name := c.createNamespace("-a", map[string]string{"team": "a", "foo.com/managed-state": "managed"}).Name
	c.run()
	c.isReady()
	c.allReported()
	report := c.isReported(name)
	if want := map[string]string{"team": "a", "foo.com/managed-state": "managed", corev1.LabelMetadataName: name}; !maps.Equal(report.Labels, want) || len(report.Annotations) != 0 {
		t.Errorf("labels = %v, annotations = %v, want labels %v and no annotations", report.Labels, report.Annotations, want)
	}
	c.labelNamespace(name, `{"team":"b","foo.com/managed-state":null,"new":""}`)
	changed := c.isReported(name)
	if want := map[string]string{"team": "b", "new": "", corev1.LabelMetadataName: name}; !maps.Equal(changed.Labels, want) || changed.UID != report.UID {
		t.Errorf("labels = %v, UID = %s, want %v, %s", changed.Labels, changed.UID, want, report.UID)
	}
	c.deleteNamespace(name)
	c.notReported(name)
	again := c.createNamespace("-a", nil)
	if report := c.isReported(name); report.Spec.NamespaceUID != again.UID || report.Spec.NamespaceUID == changed.Spec.NamespaceUID {
		t.Errorf("namespaceUID = %s, want %s instead of %s", report.Spec.NamespaceUID, again.UID, changed.Spec.NamespaceUID)
	}
	c.allReported()
}

// testNamespaceTerminating checks that the agent does not report a namespace that is being deleted.
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
	// After a change of the namespace or a restart, the agent must not report it again.
	c.labelNamespace(name, `{"team":"a"}`)
	c.kill()
	c.run()
	c.isReported(c.createNamespace("-marker", nil).Name)
	c.allReported()
	if namespace, err := c.kube.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}); err != nil || namespace.DeletionTimestamp == nil {
		t.Fatalf("Get(namespace %s) = %v, %v, want a namespace with deletionTimestamp", name, namespace, err)
	}
	if _, err := c.kube.CoreV1().ConfigMaps(name).Patch(t.Context(), stuck.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "namespace "+name+" can be created again", func(ctx context.Context) error {
		_, err := c.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	})
	c.isReported(name)
}

// testReportEditsReverted checks that the agent reverts edits of ClusterNamespaces by other clients,
// except in fields that it does not manage.
func testReportEditsReverted(t *testing.T, c *cluster) {
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
			t.Fatalf("%s: resourceVersion after the edit = %s, want another", what, edited.ResourceVersion)
		}
		if report = c.isReported(name); report.ResourceVersion == edited.ResourceVersion {
			t.Fatalf("%s: resourceVersion = %s, want another after the edit is reverted", what, report.ResourceVersion)
		}
	}
	if _, err := c.reports().Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"note":"of a person"},"labels":{"team":"b"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if report := c.isReported(name); report.Annotations["note"] != "of a person" {
		t.Errorf("annotations = %v, want note kept", report.Annotations)
	}
	if err := c.reports().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if again := c.isReported(name); again.UID == report.UID {
		t.Errorf("UID of the recreated ClusterNamespace = %s, want another", again.UID)
	}
	invented := &v1alpha1.ClusterNamespace{ObjectMeta: metav1.ObjectMeta{Name: c.name + "-invented", Labels: map[string]string{"team": "a"}}}
	if _, err := c.reports().Create(t.Context(), invented, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.notReported(invented.Name)
	c.allReported()
}

// testNamespacesRestart checks that a restarted agent writes only ClusterNamespaces that have changed.
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
	// The agent reports the marker last, so all other writes are recorded now.
	c.isReported(c.createNamespace("-marker", nil).Name)
	got := hub.writes()
	slices.Sort(got)
	want := []string{"DELETE " + deleted, "POST clusternamespaces", "POST clusternamespaces", "PUT " + edited, "PUT " + labelled, "PUT " + remade}
	if !slices.Equal(got, want) {
		t.Errorf("writes = %v, want %v", got, want)
	}
}

// testIdleNamespaces checks that changes of fields that are not reported cause no request, and that a
// restart causes no write.
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
		t.Errorf("requests = %s, want only POST clusternamespaces", got)
	}
	c.kill()
	hub = c.recordReports()
	c.run()
	c.isReady()
	c.isReported(c.createNamespace("-marker-2", nil).Name)
	if got := hub.writes(); len(got) != 1 {
		t.Errorf("writes after the restart = %s, want only one for the marker", got)
	}
	if managed.writes.Load() != 0 {
		t.Errorf("writes on the managed cluster = %d, want 0", managed.writes.Load())
	}
}
