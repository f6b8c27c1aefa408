package agent_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/hub-apiserver/pkg/agent"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

func testReasonsOfDeletion(t *testing.T, c *cluster) {
	c.run()
	name := c.create("", nil, `{apiVersion: v1, kind: ConfigMap, metadata: {name: held, namespace: NS, finalizers: [example.com/held]}}`)
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.delete(name)
	work := c.has(name, -1, "Deleting=True: WorkDeleting")
	if !slices.Contains(work.Finalizers, workv1.ManifestWorkFinalizer) {
		t.Errorf("finalizers = %v, want %s", work.Finalizers, workv1.ManifestWorkFinalizer)
	}
	eventually(t, "the message of condition Deleting contains the remaining ConfigMap", func(ctx context.Context) error {
		work, err := c.works().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if message := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkDeleting).Message; !strings.Contains(message, "/held") {
			return errors.New("message = " + message)
		}
		return nil
	})
	if _, err := c.kube.CoreV1().ConfigMaps(c.name).Patch(t.Context(), "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.gone(name)
}

// testFinalizerFirst checks that the agent applies no manifest before the ManifestWork has the
// agent's finalizer.
func testFinalizerFirst(t *testing.T, c *cluster) {
	var tried, let atomic.Bool
	refuse := exchange(func(request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if !let.Load() && request.Method == http.MethodPatch && strings.HasSuffix(request.URL.Path, "/manifestworks/"+c.name) {
			tried.Store(true)
			return nil, errors.New("the hub does not respond")
		}
		return send()
	})
	c.hubExchanges.Store(&refuse)
	var writes atomic.Int32
	c.onRequest(func(request *http.Request) error {
		if request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, "/configmaps") {
			writes.Add(1)
		}
		return nil
	})
	c.run()
	name := c.create("", nil, configMap("a", "one"))
	eventually(t, "the agent has tried to add its finalizer", func(context.Context) error {
		if !tried.Load() {
			return errors.New("the agent has sent no patch")
		}
		return nil
	})
	other := c.create("-other", nil, configMap("b", "one"))
	c.condition(other, workv1.WorkApplied, metav1.ConditionTrue)
	if _, err := c.configMap("a"); !apierrors.IsNotFound(err) || writes.Load() != 1 {
		t.Errorf("Get(ConfigMap a) = %v and created ConfigMaps = %d without the finalizer, want NotFound and 1", err, writes.Load())
	}
	let.Store(true)
	c.hasConfigMap("a", "one")
	if work := c.condition(name, workv1.WorkApplied, metav1.ConditionTrue); !slices.Contains(work.Finalizers, workv1.ManifestWorkFinalizer) {
		t.Errorf("finalizers = %v, want %s", work.Finalizers, workv1.ManifestWorkFinalizer)
	}
}

func testAppliedManifestWork(t *testing.T, c *cluster) {
	c.run()
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: c.name, Labels: map[string]string{"team": "blue"}}}
	work.Spec.Workload.Manifests = []workv1.Manifest{
		c.manifest(configMap("a", "one")), c.manifest(`{apiVersion: v1, kind: Namespace, metadata: {name: NS-more}}`),
	}
	if _, err := c.works().Create(t.Context(), work, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.condition(c.name, workv1.WorkApplied, metav1.ConditionTrue)
	applied := c.hasConfigMap("a", "one")
	record, err := c.record(c.name)
	if err != nil {
		t.Fatal(err)
	}
	hash := agent.HubHash(c.config.Host)
	if want := (workv1.AppliedManifestWorkSpec{HubHash: hash, AgentID: c.name, ManifestWorkName: c.name}); record.Name != hash+"-"+c.name || record.Spec != want {
		t.Errorf("AppliedManifestWork = %s with spec %+v, want %s with spec %+v", record.Name, record.Spec, hash+"-"+c.name, want)
	}
	if record.Labels["team"] != "blue" || !slices.Contains(record.Finalizers, workv1.AppliedManifestWorkFinalizer) {
		t.Errorf("labels = %v, finalizers = %v, want team=blue and %s", record.Labels, record.Finalizers, workv1.AppliedManifestWorkFinalizer)
	}
	want := workv1.AppliedManifestResourceMeta{
		Resource: "configmaps", Namespace: c.name, Name: "a", Version: "v1", UID: string(applied.UID),
	}
	if len(record.Status.AppliedResources) != 2 || !slices.Contains(record.Status.AppliedResources, want) {
		t.Errorf("appliedResources = %+v, want 2 entries with %+v", record.Status.AppliedResources, want)
	}
	owner := metav1.OwnerReference{APIVersion: "work.open-cluster-management.io/v1", Kind: "AppliedManifestWork", Name: record.Name, UID: record.UID}
	if len(applied.OwnerReferences) != 1 || applied.OwnerReferences[0] != owner {
		t.Errorf("ownerReferences = %+v, want only %+v", applied.OwnerReferences, owner)
	}
}

// testOtherOwners checks that owners other than AppliedManifestWorks do not prevent the deletion of
// an object.
func testOtherOwners(t *testing.T, c *cluster) {
	owner := c.createConfigMap("owner", "x")
	c.run()
	name := c.create("", nil, configMap("a", "one"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	got := c.hasConfigMap("a", "one")
	got.OwnerReferences = append(got.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID})
	if _, err := c.kube.CoreV1().ConfigMaps(c.name).Update(t.Context(), got, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.delete(name)
	c.gone(name)
	c.noConfigMap("a")
}

// testDeleteOptions checks that the agent deletes an object by UID and with background propagation.
func testDeleteOptions(t *testing.T, c *cluster) {
	var mu sync.Mutex
	var bodies []string
	c.onExchange(func(request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if request.Method == http.MethodDelete && strings.HasSuffix(request.URL.Path, "/configmaps/a") {
			if body, err := request.GetBody(); err == nil {
				content, _ := io.ReadAll(body)
				mu.Lock()
				bodies = append(bodies, string(content))
				mu.Unlock()
			}
		}
		return send()
	})
	c.run()
	name := c.create("", nil, configMap("a", "one"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	got := c.hasConfigMap("a", "one")
	c.delete(name)
	c.gone(name)
	mu.Lock()
	defer mu.Unlock()
	if len(bodies) == 0 || !strings.Contains(bodies[0], string(got.UID)) || !strings.Contains(bodies[0], "Background") {
		t.Errorf("bodies of DELETE requests = %q, want UID %s and propagation policy Background", bodies, got.UID)
	}
}

// testOrphanExactly checks that orphaning rules match exactly, without wildcards.
func testOrphanExactly(t *testing.T, c *cluster) {
	c.run()
	name := c.create("", func(spec *workv1.ManifestWorkSpec) {
		spec.DeleteOption = &workv1.DeleteOption{
			PropagationPolicy: workv1.DeletePropagationPolicyTypeSelectivelyOrphan,
			SelectivelyOrphan: &workv1.SelectivelyOrphan{OrphaningRules: []workv1.OrphaningRule{
				{Resource: "configmaps", Namespace: new(c.name), Name: "*"}, {Resource: "secrets", Namespace: new(c.name), Name: "other"},
				{Resource: "configmaps", Name: "no-namespace"}, {Resource: "configmaps", Namespace: new(c.name), Name: "stays"},
			}},
		}
	}, configMap("goes", "one"), configMap("other", "one"), configMap("no-namespace", "one"), configMap("stays", "one"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	// An orphaned object also stays if its manifest is removed from the ManifestWork.
	c.replace(name, configMap("goes", "one"), configMap("other", "one"), configMap("no-namespace", "one"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.delete(name)
	c.gone(name)
	for _, gone := range []string{"goes", "other", "no-namespace"} {
		c.noConfigMap(gone)
	}
	if got := c.hasConfigMap("stays", "one"); len(got.OwnerReferences) > 0 {
		t.Errorf("ownerReferences = %v, want none", got.OwnerReferences)
	}
}

// testKeepsForeignMetadata checks that an update keeps the labels, annotations, owners and finalizers
// that other clients have added.
func testKeepsForeignMetadata(t *testing.T, c *cluster) {
	owner := c.createConfigMap("owner", "x")
	c.run()
	name := c.create("", nil, `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS, labels: {ours: x}, annotations: {ours: x}}, data: {key: one}}`)
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	got := c.hasConfigMap("a", "one")
	got.Labels["theirs"], got.Annotations["theirs"] = "y", "y"
	got.Finalizers = append(got.Finalizers, "example.com/theirs")
	got.OwnerReferences = append(got.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID})
	if _, err := c.kube.CoreV1().ConfigMaps(c.name).Update(t.Context(), got, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.replace(name, `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS, labels: {ours: z}, annotations: {ours: z}}, data: {key: two}}`)
	got = c.hasConfigMap("a", "two")
	if got.Labels["theirs"] != "y" || got.Labels["ours"] != "z" || got.Annotations["theirs"] != "y" || got.Annotations["ours"] != "z" {
		t.Errorf("labels = %v, annotations = %v, want theirs=y and ours=z in both", got.Labels, got.Annotations)
	}
	if len(got.OwnerReferences) != 2 || !slices.Contains(got.Finalizers, "example.com/theirs") {
		t.Errorf("ownerReferences = %v, finalizers = %v, want 2 owners and example.com/theirs", got.OwnerReferences, got.Finalizers)
	}
	if _, err := c.kube.CoreV1().ConfigMaps(c.name).Patch(t.Context(), "a", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
