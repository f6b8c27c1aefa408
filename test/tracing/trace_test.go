package tracing

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// Services of spans. The kube-apiservers of the hub and of the managed cluster have the same name.
const (
	kubeAPIServer = "apiserver"
	server        = "hub-apiserver"
	agent         = "hub-agent"
)

const worksPath = "/apis/work.open-cluster-management.io/v1/namespaces/{:namespace}/manifestworks"

func TestTraceOfClusterPermission(t *testing.T) {
	t.Parallel()
	f := shared(t)
	by, name := f.traced(t, true), framework.Unique("traced")
	framework.CreatePermission(t, by, framework.Permission(name))
	framework.Eventually(t, "the trace contains all steps from the request to the report", func(context.Context) error {
		return f.spans.contains(by, []expected{
			{kubeAPIServer, "POST /apis/rbac.open-cluster-management.io", "", -1},
			{server, "POST /apis/rbac.open-cluster-management.io/v1alpha1/namespaces/{:namespace}/clusterpermissions", "", 0},
			{server, "Render ClusterPermission", "", 1},
			{server, "Check escalation", "", 1},
			{server, "Deliver ClusterPermission", "", 1},
			// Either the request or the controller writes the ManifestWork first.
			{server, "POST " + worksPath, "", 1},
			{agent, "Apply ManifestWork", "", 1},
			{agent, "Apply object", "", 6},
			{agent, "HTTP POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", 7},
			{agent, "Report status", "", 6},
			{agent, "HTTP PATCH", "/manifestworks/", 9},
		})
	})
}

func TestTraceOfManifestWorkWithExecutor(t *testing.T) {
	t.Parallel()
	f := shared(t)
	name := framework.Unique("deployer")
	_, err := f.ManagedClient.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: name}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret := framework.Unique("hidden")
	work := framework.ConfigMapWork(name, fmt.Sprintf(
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":%q,"namespace":"default"},"stringData":{"password":%q}}`, name, secret))
	work.Spec.Executor = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
		Type: workv1.ExecutorSubjectTypeServiceAccount, ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: "default", Name: name},
	}}

	by := f.traced(t, true)
	f.createWork(t, by, work)
	framework.Eventually(t, "the trace contains the steps of a ManifestWork with executor", func(context.Context) error {
		return f.spans.contains(by, []expected{
			{server, "POST " + worksPath, "", -1},
			{server, "Check executor", "", 0},
			{agent, "Apply ManifestWork", "", 0},
			{agent, "Check access of executor", "", 2},
			{agent, "HTTP POST", "/subjectaccessreviews", 3},
			{agent, "Apply object", "", 2},
			{agent, "HTTP POST", "/api/v1/namespaces/default/secrets", 2},
			{agent, "Report status", "", 2},
		})
	})
	framework.Eventually(t, "a span of the managed cluster links to the agent's request", func(context.Context) error {
		linked := f.spans.all(func(s span) bool {
			return s.service == kubeAPIServer && s.Name == "POST /api/v1/namespaces/{:namespace}/secrets" && len(s.Links) == 1 &&
				fmt.Sprintf("%x", s.Links[0].TraceId) == by.trace
		})
		if len(linked) == 0 {
			return fmt.Errorf("spans of POST secrets with a link to trace %s = none", by.trace)
		}
		return nil
	})

	encoded := base64.StdEncoding.EncodeToString([]byte(secret))
	for _, s := range f.spans.all(func(span) bool { return true }) {
		if content := s.Span.String(); strings.Contains(content, secret) || strings.Contains(content, encoded) {
			t.Errorf("span %s contains data of a Secret: %s", s, content)
		}
	}
}

func TestOnlyChangesJoinATrace(t *testing.T) {
	t.Parallel()
	f := shared(t)
	name, first := framework.Unique("changed"), f.traced(t, true)
	f.createWork(t, first, framework.ConfigMapWork(name))
	f.passIn(t, first)

	// A repair has its own trace, with a link to the request.
	if err := f.ManagedClient.CoreV1().ConfigMaps("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the agent has created the object again in a trace of its own", func(context.Context) error {
		repairs := f.spans.all(func(s span) bool {
			return s.service == agent && s.Name == "Apply ManifestWork" && s.attribute("manifestwork.name") == name && s.trace() != first.trace &&
				len(s.Links) == 1 && fmt.Sprintf("%x", s.Links[0].TraceId) == first.trace
		})
		for _, repair := range repairs {
			for _, s := range f.spans.of(repair.trace()) {
				if s.service == agent && s.Name == "HTTP POST" && strings.Contains(s.attribute("url.full"), "/configmaps") {
					return nil
				}
			}
		}
		return fmt.Errorf("passes with a link to the request = %v, want one that creates the ConfigMap", repairs)
	})

	// A change of the spec belongs to the trace of the request that makes it.
	second := f.traced(t, true)
	work := framework.Must(second.WorkV1().ManifestWorks(framework.Cluster1).Get(t.Context(), name, metav1.GetOptions{}))(t)
	work.ResourceVersion = "" // the agent writes the status meanwhile
	work.Spec.Workload.Manifests[0].Raw = []byte(fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"default"},"data":{"changed":"true"}}`, name))
	framework.Must(second.WorkV1().ManifestWorks(framework.Cluster1).Update(t.Context(), work, metav1.UpdateOptions{}))(t)
	f.passIn(t, second)

	if count := f.creations(first.trace); count != 1 {
		t.Errorf("the trace of the first request contains %d creations of the ConfigMap, want 1", count)
	}
}

func TestSpansOfLargeManifestWork(t *testing.T) {
	t.Parallel()
	f := shared(t)
	name := framework.Unique("large")
	const manifests = 300
	work := framework.ConfigMapWork(name)
	for i := range manifests - 1 {
		work.Spec.Workload.Manifests = append(work.Spec.Workload.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(
			fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s-%d","namespace":"default"}}`, name, i))}})
	}
	by := f.traced(t, true)
	f.createWork(t, by, work)
	f.passIn(t, by)
	recorded := map[string]int{}
	var omitted int64
	for _, s := range f.spans.of(by.trace) {
		if s.service == agent {
			recorded[s.Name]++
			omitted += s.number("pass.omitted_spans")
		}
	}
	// Each manifest has a span of its own, and at least one of a request.
	objects, spans := recorded["Apply object"], 0
	for _, count := range recorded {
		spans += count
	}
	if objects == 0 || spans > manifests || recorded["Report status"] == 0 || omitted < int64(2*manifests-spans) {
		t.Errorf("spans of the agent for %d manifests = %v, and %d omitted ones, want some objects, the report, and all others omitted", manifests, recorded, omitted)
	}
}

// createWork creates a ManifestWork, and waits until the agent has applied it.
func (f *fleet) createWork(t *testing.T, by *caller, work *workv1.ManifestWork) *workv1.ManifestWork {
	t.Helper()
	works := f.OCM.WorkV1().ManifestWorks(work.Namespace)
	created := framework.Must(by.WorkV1().ManifestWorks(work.Namespace).Create(t.Context(), work, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		if err := works.Delete(context.WithoutCancel(t.Context()), work.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	framework.Eventually(t, "ManifestWork "+work.Name+" is applied", func(ctx context.Context) error {
		current, err := works.Get(ctx, work.Name, metav1.GetOptions{})
		if err == nil && !meta.IsStatusConditionTrue(current.Status.Conditions, workv1.WorkApplied) {
			err = fmt.Errorf("conditions = %v", current.Status.Conditions)
		}
		return err
	})
	return created
}

// passIn waits until a trace contains a complete pass of the agent.
func (f *fleet) passIn(t *testing.T, by *caller) {
	t.Helper()
	framework.Eventually(t, "the trace contains a pass of the agent", func(context.Context) error {
		return f.spans.contains(by, []expected{
			{agent, "Apply ManifestWork", "", -1},
			{agent, "Report status", "", 0},
		})
	})
}

// creations returns the number of requests of the agent in a trace that create ConfigMaps.
func (f *fleet) creations(trace string) int {
	count := 0
	for _, s := range f.spans.of(trace) {
		if s.service == agent && s.Name == "HTTP POST" && strings.Contains(s.attribute("url.full"), "/configmaps") {
			count++
		}
	}
	return count
}
