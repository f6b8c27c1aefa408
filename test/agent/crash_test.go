package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

var errDead = errors.New("the test fails this request")

// dieAt makes all requests of the agent to the managed cluster, except watches, fail from its n-th
// write on. If arrives is set, the n-th write takes effect, but the agent does not receive the
// response. The returned function reports whether the agent has sent the n-th write.
func (c *cluster) dieAt(n int32, arrives bool) func() bool {
	var writes atomic.Int32
	c.onExchange(func(request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		count := writes.Load()
		if request.Method != http.MethodGet && count < n {
			count = writes.Add(1)
		}
		switch {
		case count < n || request.Method == http.MethodGet && strings.Contains(request.URL.RawQuery, "watch="):
			return send()
		case count == n && arrives && request.Method != http.MethodGet && writes.CompareAndSwap(n, n+1):
			response, err := send()
			if err == nil {
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			}
		}
		return nil, errDead
	})
	return func() bool { return writes.Load() >= n }
}

// testCrashAtEachWrite stops the agent at each write in turn, before and after the write takes effect,
// and changes the ManifestWork before the next agent starts. It checks that no object stays that the
// ManifestWork does not contain.
func testCrashAtEachWrite(t *testing.T, c *cluster) {
	for _, arrives := range []bool{false, true} {
		for n := int32(1); ; n++ {
			suffix := fmt.Sprintf("-%d-%t", n, arrives)
			object := func(name string) string { return name + suffix }
			died := c.dieAt(n, arrives)
			name := c.create(suffix, nil, configMap(object("a"), "one"), configMap(object("b"), "one"))
			c.run()
			finished := false
			eventually(t, "the agent has lost the cluster or reported the status", func(ctx context.Context) error {
				if died() {
					return nil
				}
				work, err := c.works().Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				if len(work.Status.Conditions) == 0 {
					return errors.New("the status has no conditions")
				}
				// The agent may have lost the cluster, and reported that, since the first check.
				finished = !died()
				return nil
			})
			c.kill()
			// The second manifest stays, and the first is replaced.
			c.replace(name, configMap(object("b"), "two"), configMap(object("c"), "two"))
			c.onExchange(nil)
			c.run()
			c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
			c.hasConfigMap(object("b"), "two")
			c.hasConfigMap(object("c"), "two")
			c.noConfigMap(object("a"))
			c.delete(name)
			c.gone(name)
			c.noConfigMap(object("b"))
			c.noConfigMap(object("c"))
			c.kill()
			if finished {
				if n < 5 {
					t.Fatalf("writes until the status is reported = %d, want at least 4", n-1)
				}
				break
			}
		}
	}
}

// testCrashInRemoval is like testCrashAtEachWrite, for the deletion of a ManifestWork.
func testCrashInRemoval(t *testing.T, c *cluster) {
	for _, arrives := range []bool{false, true} {
		for n := int32(1); ; n++ {
			suffix := fmt.Sprintf("-%d-%t", n, arrives)
			name := c.create(suffix, nil, configMap("a"+suffix, "one"), configMap("b"+suffix, "one"))
			c.run()
			c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
			died := c.dieAt(n, arrives)
			c.delete(name)
			finished := false
			eventually(t, "the agent has lost the cluster or finalized the ManifestWork", func(ctx context.Context) error {
				if died() {
					return nil
				}
				_, err := c.works().Get(ctx, name, metav1.GetOptions{})
				if apierrors.IsNotFound(err) {
					finished = true
					return nil
				}
				return errors.New("the ManifestWork exists")
			})
			c.kill()
			c.onExchange(nil)
			c.run()
			c.gone(name)
			c.noConfigMap("a" + suffix)
			c.noConfigMap("b" + suffix)
			c.kill()
			if finished {
				break
			}
		}
	}
}

// testRestart checks that a restarted agent writes nothing if no object has changed, even if the API
// server has defaulted or converted fields of the manifests.
func testRestart(t *testing.T, c *cluster) {
	manifests := []string{
		configMap("a", "one"),
		`{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: NS}, stringData: {password: x}}`,
		`{apiVersion: v1, kind: Service, metadata: {name: dns, namespace: NS}, spec: {selector: {app: dns}, ports: [{name: tcp, port: 53, protocol: TCP}, {name: udp, port: 53, protocol: UDP}]}}`,
		`{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: NS, creationTimestamp: null}, spec: {replicas: 2, selector: {matchLabels: {app: d}},
		  template: {metadata: {labels: {app: d}}, spec: {containers: [{name: c, image: c, resources: {requests: {cpu: 1000m, memory: 1024Mi}}, ports: [{containerPort: 80}], env: [{name: A, value: b}]}], volumes: [{name: v, emptyDir: {}}]}}}, status: {}}`,
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: NS}, aggregationRule: {clusterRoleSelectors: [{matchLabels: {to: NS}}]}, rules: []}`,
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: NS-part, labels: {to: NS}}, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}`,
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: b, namespace: NS}, roleRef: {kind: ClusterRole, name: NS},
		  subjects: [{kind: ServiceAccount, name: x, namespace: NS}, {kind: Group, name: g}, {kind: User, name: u}]}`,
		`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: np, namespace: NS}, spec: {podSelector: {}}}`,
		`{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: p, namespace: NS}, spec: {minAvailable: 50%, selector: {matchLabels: {app: d}}}}`,
		`{apiVersion: batch/v1, kind: CronJob, metadata: {name: c, namespace: NS}, spec: {schedule: "0 0 1 1 *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: c}]}}}}}}`,
	}
	c.run()
	name := c.create("", nil, manifests...)
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.condition(name, workv1.WorkAvailable, metav1.ConditionTrue)
	c.kill()
	var reads atomic.Int32
	c.onRequest(func(request *http.Request) error {
		switch {
		case strings.Contains(request.URL.Path, "/appliedmanifestworks"), strings.Contains(request.URL.Path, "/customresourcedefinitions"):
		case request.Method != http.MethodGet:
			t.Errorf("request after the restart = %s %s, want no writes", request.Method, request.URL.Path)
		case strings.HasSuffix(request.URL.Path, "/cronjobs/c"):
			reads.Add(1)
		}
		return nil
	})
	c.run()
	eventually(t, "the agent reads the object of the last manifest", func(context.Context) error {
		if reads.Load() == 0 {
			return errors.New("the agent has not read the CronJob")
		}
		return nil
	})
	// Passes over a ManifestWork do not overlap, so the first pass has ended when this one has.
	if _, err := c.works().Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the AppliedManifestWork has the label", func(context.Context) error {
		record, err := c.record(name)
		if err == nil && record.Labels["x"] != "y" {
			err = errors.New("the label is missing")
		}
		return err
	})
}

// testRecordDeleted checks that the agent recreates an AppliedManifestWork and its objects if they
// are deleted while the ManifestWork exists.
func testRecordDeleted(t *testing.T, c *cluster) {
	c.run()
	name := c.create("", nil, configMap("a", "one"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	first, err := c.record(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.ocm.WorkV1().AppliedManifestWorks().Delete(t.Context(), first.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a new AppliedManifestWork owns ConfigMap a", func(context.Context) error {
		record, err := c.record(name)
		if err != nil {
			return err
		}
		got, err := c.configMap("a")
		if err != nil {
			return err
		}
		if record.UID == first.UID || len(got.OwnerReferences) != 1 || got.OwnerReferences[0].UID != record.UID {
			return fmt.Errorf("UID of the AppliedManifestWork = %s, ownerReferences = %v", record.UID, got.OwnerReferences)
		}
		return nil
	})
}

// testUnresolved checks that the agent does not remove an object if a manifest that may describe it
// cannot be resolved to a resource.
func testUnresolved(t *testing.T, c *cluster) {
	crd := `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: gadgets.unresolved.example.com}, spec: {
	  group: unresolved.example.com, scope: Namespaced, names: {plural: gadgets, singular: gadget, kind: Gadget, listKind: GadgetList},
	  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`
	gadget := `{apiVersion: unresolved.example.com/VERSION, kind: Gadget, metadata: {name: g, namespace: NS}}`
	c.run()
	base := c.create("-crd", nil, crd)
	c.condition(base, workv1.WorkApplied, metav1.ConditionTrue)
	name := c.create("", nil, strings.ReplaceAll(gadget, "VERSION", "v1"), configMap("a", "one"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.replace(name, strings.ReplaceAll(gadget, "VERSION", "v7"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionFalse)
	c.noConfigMap("a")
	record, err := c.record(name)
	if err != nil {
		t.Fatal(err)
	}
	if entries := record.Status.AppliedResources; len(entries) != 1 || entries[0].Resource != "gadgets" || entries[0].UID == "" {
		t.Errorf("appliedResources = %+v, want one entry of gadgets with a UID", entries)
	}
	c.delete(name)
	c.gone(name)
	c.delete(base)
	c.gone(base)
}
