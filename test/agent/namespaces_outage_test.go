package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

// testOtherHubNamespaces checks that the agent does not change ClusterNamespaces in other namespaces
// of the hub.
func testOtherHubNamespaces(t *testing.T, c *cluster) {
	c.grantReports()
	name := c.createNamespace("-a", nil).Name
	var others []*v1alpha1.ClusterNamespace
	for _, other := range []string{name, c.name + "-invented"} {
		report, err := c.ocm.RbacV1alpha1().ClusterNamespaces(name).Create(t.Context(), &v1alpha1.ClusterNamespace{
			ObjectMeta: metav1.ObjectMeta{Name: other, Labels: map[string]string{"of": "another-cluster"}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		others = append(others, report)
	}
	c.run()
	c.isReported(name)
	c.labelNamespace(name, `{"team":"a"}`)
	c.isReported(name)
	c.allReported()
	for _, other := range others {
		report, err := c.ocm.RbacV1alpha1().ClusterNamespaces(name).Get(t.Context(), other.Name, metav1.GetOptions{})
		if err != nil || report.UID != other.UID || report.ResourceVersion != other.ResourceVersion {
			t.Errorf("Get(ClusterNamespace %s) = %v, %v, want resourceVersion %s", other.Name, report, err, other.ResourceVersion)
		}
	}
}

// testNamespacesOutage checks that the agent reports changes that happen during an outage of the hub
// after the outage, without a restart.
func testNamespacesOutage(t *testing.T, c *cluster) {
	c.grantReports()
	labelled, deleted := c.createNamespace("-labelled", nil).Name, c.createNamespace("-deleted", nil).Name
	c.run()
	c.isReady()
	c.allReported()
	var failed, failedReports atomic.Int32
	away := func(request *http.Request) error {
		failed.Add(1)
		if isAboutReports(request) {
			failedReports.Add(1)
		}
		return errDead
	}
	c.onHubRequest(away)
	c.labelNamespace(labelled, `{"team":"a"}`)
	c.deleteNamespace(deleted)
	c.createNamespace("-new", nil)
	tried := func(what string, requests *atomic.Int32, n int32) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d requests %s have failed", n, what), func(context.Context) error {
			if requests.Load() < n {
				return fmt.Errorf("failed requests = %d", requests.Load())
			}
			return nil
		})
	}
	tried("for ClusterNamespaces", &failedReports, 6)
	c.onHubRequest(nil)
	c.allReported()
	// The same holds for an agent that starts during the outage.
	c.kill()
	failed.Store(0)
	c.onHubRequest(away)
	c.run()
	c.labelNamespace(labelled, `{"team":"b"}`)
	tried("to the hub", &failed, 2)
	if c.agent.Ready() == nil {
		t.Error("Ready() without the hub = nil, want an error")
	}
	c.onHubRequest(nil)
	c.isReported(labelled)
	c.isReady()
}

// testLostResponses checks that the agent retries a write after a conflict, and after the response to
// a successful write was lost.
func testLostResponses(t *testing.T, c *cluster) {
	c.grantReports()
	c.run()
	c.isReady()
	c.allReported()
	var writes [3]atomic.Int32
	methods := []string{http.MethodPost, http.MethodPut, http.MethodDelete}
	reasons := []metav1.StatusReason{metav1.StatusReasonAlreadyExists, metav1.StatusReasonConflict, metav1.StatusReasonConflict}
	hook := exchange(func(request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		kind := slices.Index(methods, request.Method)
		if kind < 0 || !isAboutReports(request) {
			return send()
		}
		switch writes[kind].Add(1) {
		case 1:
			return answer(request, http.StatusConflict, "application/json", fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":409}`, reasons[kind])), nil
		case 2:
			response, err := send()
			if err != nil {
				return nil, err
			}
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			return nil, errDead
		default:
			return send()
		}
	})
	c.hubExchanges.Store(&hook)
	name := c.createNamespace("-a", nil).Name
	c.isReported(name)
	c.labelNamespace(name, `{"team":"a"}`)
	c.isReported(name)
	c.deleteNamespace(name)
	c.notReported(name)
	c.allReported()
	for kind, method := range methods {
		if n := writes[kind].Load(); n < 2 {
			t.Errorf("%s requests for ClusterNamespaces = %d, want at least 2", method, n)
		}
	}
}

// testNamespacesNotListed checks that the agent does not delete ClusterNamespaces if it cannot list
// the namespaces of the managed cluster.
func testNamespacesNotListed(t *testing.T, c *cluster) {
	c.grantReports()
	kept, deleted := c.createNamespace("-kept", nil), c.createNamespace("-deleted", nil).Name
	c.run()
	c.isReported(deleted)
	report := c.isReported(kept.Name)
	c.allReported()
	c.kill()
	c.deleteNamespace(deleted)
	var refused atomic.Int32
	c.onExchange(func(request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if request.URL.Path == "/api/v1/namespaces" {
			refused.Add(1)
			return answer(request, http.StatusForbidden, "application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`), nil
		}
		return send()
	})
	hub := c.recordReports()
	c.run()
	eventually(t, "4 requests for namespaces were forbidden", func(context.Context) error {
		if n := refused.Load(); n < 4 {
			return fmt.Errorf("forbidden requests = %d", n)
		}
		return nil
	})
	if got := hub.writes(); len(got) != 0 {
		t.Errorf("writes of ClusterNamespaces = %v, want none", got)
	}
	if c.agent.Ready() == nil {
		t.Error("Ready() without the list of namespaces = nil, want an error")
	}
	c.onExchange(nil)
	c.notReported(deleted)
	c.isReady()
	if again := c.isReported(kept.Name); again.UID != report.UID {
		t.Errorf("UID of ClusterNamespace %s = %s, want %s", kept.Name, again.UID, report.UID)
	}
}

// testReportsNotServed checks a hub that does not serve ClusterNamespaces. The agent becomes ready and
// does not list namespaces. It reports the namespaces as soon as the hub serves ClusterNamespaces.
func testReportsNotServed(t *testing.T, c *cluster) {
	c.grantReports()
	var refused, listed atomic.Int32
	hook := exchange(func(request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if strings.HasPrefix(request.URL.Path, "/apis/rbac.open-cluster-management.io/") {
			refused.Add(1)
			return answer(request, http.StatusNotFound, "text/plain", "404 page not found\n"), nil
		}
		return send()
	})
	c.hubExchanges.Store(&hook)
	c.onRequest(func(request *http.Request) error {
		if request.URL.Path == "/api/v1/namespaces" {
			listed.Add(1)
		}
		return nil
	})
	c.run()
	eventually(t, "the agent is ready without ClusterNamespaces", func(context.Context) error {
		if refused.Load() == 0 {
			return errors.New("the agent has sent no request for ClusterNamespaces")
		}
		return c.agent.Ready()
	})
	if listed.Load() != 0 {
		t.Errorf("requests for namespaces = %d, want 0", listed.Load())
	}
	c.hubExchanges.Store(nil)
	c.isReported(c.createNamespace("-a", nil).Name)
	c.allReported()
	c.isReady()
}

// testReportsNotAllowed is like testReportsNotServed, for an agent without permission to read
// ClusterNamespaces.
func testReportsNotAllowed(t *testing.T, c *cluster) {
	hub := c.recordReports()
	c.run()
	eventually(t, "the agent is ready without ClusterNamespaces", func(context.Context) error {
		if len(hub.list()) == 0 {
			return errors.New("the agent has sent no request for ClusterNamespaces")
		}
		return c.agent.Ready()
	})
	c.grantReports()
	c.allReported()
	c.isReady()
}

// testReportsNotWritable checks that the agent retries forbidden writes until they are allowed.
func testReportsNotWritable(t *testing.T, c *cluster) {
	c.createRole(rbacv1.PolicyRule{APIGroups: []string{v1alpha1.SchemeGroupVersion.Group}, Resources: []string{"clusternamespaces"}, Verbs: []string{"get", "list", "watch"}})
	name := c.createNamespace("-a", nil).Name
	hub := c.recordReports()
	c.run()
	c.isReady()
	eventually(t, "the agent has tried to write a ClusterNamespace", func(context.Context) error {
		if len(hub.writes()) == 0 {
			return errors.New("the agent has sent no write")
		}
		return nil
	})
	c.grantReports()
	c.isReported(name)
	c.allReported()
}
