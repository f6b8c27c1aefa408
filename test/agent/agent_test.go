package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// TestWorks runs agents that apply ManifestWorks. They share one cluster, and each has its own
// namespace on the hub.
func TestWorks(t *testing.T) {
	t.Parallel()
	f := own(t)
	for _, tests := range []map[string]func(*testing.T, *cluster){applyTests, completeTests, executorTests} {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, f.cluster(t))
			})
		}
	}
}

var applyTests = map[string]func(*testing.T, *cluster){
	"applies":               testApplies,
	"drift":                 testDrift,
	"manifest-removed":      testManifestRemoved,
	"field-removed":         testFieldRemoved,
	"adopted":               testAdopted,
	"orphan":                testOrphan,
	"selectively-orphan":    testSelectivelyOrphan,
	"shared":                testShared,
	"replaced-by-other":     testReplacedByOther,
	"bad-manifests":         testBadManifests,
	"executor":              testExecutor,
	"crd-and-cr":            testCRDAndCR,
	"webhook-last":          testWebhookLast,
	"webhook-refused":       testWebhookWithRefusedManifest,
	"finalizer":             testFinalizerOfController,
	"deleted-while-down":    testDeletedWhileDown,
	"finalizer-removed":     testFinalizerRemoved,
	"hub-data-loss":         testHubDataLoss,
	"late-namespace":        testLateNamespaceAndKind,
	"wrong-cluster-name":    testWrongClusterName,
	"crash-before-record":   testCrashBeforeRecord,
	"role-ref":              testRoleRef,
	"create-only":           testCreateOnly,
	"read-only":             testReadOnly,
	"server-side":           testServerSide,
	"strategy-changes":      testStrategyChanges,
	"strategy-deployment":   testStrategyOfDeployment,
	"strategy-moved":        testStrategyMoved,
	"strategy-upstream":     testStrategyAfterUpstreamAgent,
	"strategy-shared":       testStrategyShared,
	"feedback":              testFeedback,
	"complete":              testComplete,
	"idle":                  testIdle,
	"conflicting-manifests": testConflictingManifests,
	"crash-at-each-write":   testCrashAtEachWrite,
	"crash-in-removal":      testCrashInRemoval,
	"restart":               testRestart,
	"record-deleted":        testRecordDeleted,
	"unresolved":            testUnresolved,

	"permission-takeover":      testPermissionTakeover,
	"permission-own-access":    testPermissionOwnAccess,
	"permission-equal":         testPermissionEqual,
	"permission-shared":        testPermissionShared,
	"permission-role-replaced": testPermissionRoleReplaced,
	"permission-recreated":     testPermissionRecreated,
	"permission-race":          testPermissionRace,
	"permission-crash":         testPermissionCrash,
	"permission-orphaned":      testPermissionOrphaned,
	"permission-read-only":     testPermissionReadOnly,
	"permission-role-extended": testPermissionRoleExtended,
	"permission-contested":     testPermissionContested,
	"permission-marked":        testPermissionMarked,
	"permission-kept":          testPermissionKept,
}

func testApplies(t *testing.T, c *cluster) {
	c.run()
	name := c.create("", nil, configMap("a", "one"),
		`{apiVersion: v1, kind: ServiceAccount, metadata: {name: sa, namespace: NS}}`)
	work := c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.condition(name, workv1.WorkAvailable, metav1.ConditionTrue)
	if len(work.Status.ResourceStatus.Manifests) != 2 {
		t.Fatalf("manifests in the status = %d, want 2", len(work.Status.ResourceStatus.Manifests))
	}
	first := work.Status.ResourceStatus.Manifests[0]
	if got, want := first.ResourceMeta, (workv1.ManifestResourceMeta{Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Name: "a", Namespace: c.name}); got != want {
		t.Errorf("resourceMeta = %+v, want %+v", got, want)
	}
	for _, manifest := range work.Status.ResourceStatus.Manifests {
		for _, condition := range manifest.Conditions {
			if condition.ObservedGeneration != work.Generation {
				t.Errorf("observedGeneration of condition %s of manifest %d = %d, want %d", condition.Type, manifest.ResourceMeta.Ordinal, condition.ObservedGeneration, work.Generation)
			}
		}
	}
	if len(work.Finalizers) != 1 || work.Finalizers[0] != workv1.ManifestWorkFinalizer {
		t.Errorf("finalizers = %v, want only %s", work.Finalizers, workv1.ManifestWorkFinalizer)
	}
	record, err := c.record(name)
	if err != nil {
		t.Fatal(err)
	}
	if len(record.Status.AppliedResources) != 2 {
		t.Fatalf("appliedResources = %+v, want 2 entries", record.Status.AppliedResources)
	}
	for _, entry := range record.Status.AppliedResources {
		if entry.UID == "" {
			t.Errorf("UID of %s %s in appliedResources is empty, want the UID of the object", entry.Resource, entry.Name)
		}
	}
	got := c.hasConfigMap("a", "one")
	if len(got.OwnerReferences) != 1 || got.OwnerReferences[0].UID != record.UID {
		t.Errorf("ownerReferences = %v, want only the AppliedManifestWork with UID %s", got.OwnerReferences, record.UID)
	}

	c.delete(name)
	c.gone(name)
	c.noConfigMap("a")
}

func testDrift(t *testing.T, c *cluster) {
	c.run()
	name := c.create("", nil, configMap("a", "one"), configMap("b", "one"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	got := c.hasConfigMap("a", "one")
	got.Data["key"] = "drift"
	if _, err := c.kube.CoreV1().ConfigMaps(c.name).Update(t.Context(), got, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.kube.CoreV1().ConfigMaps(c.name).Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.hasConfigMap("a", "one")
	b := c.hasConfigMap("b", "one")
	eventually(t, "the AppliedManifestWork contains the UID of the new ConfigMap", func(context.Context) error {
		record, err := c.record(name)
		if err != nil {
			return err
		}
		for _, entry := range record.Status.AppliedResources {
			if entry.UID == string(b.UID) {
				return nil
			}
		}
		return fmt.Errorf("appliedResources = %+v, want an entry with UID %s", record.Status.AppliedResources, b.UID)
	})
}

func testBadManifests(t *testing.T, c *cluster) {
	c.run()
	for i := range 8 {
		c.create(fmt.Sprintf("-bad-%d", i), nil,
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: no-such-namespace}}`,
			`{apiVersion: nobody.example.com/v1, kind: Nothing, metadata: {name: a}}`,
			configMap(fmt.Sprintf("beside-%d", i), "one"))
	}
	good := c.create("-good", nil, configMap("good", "one"))
	c.condition(good, workv1.WorkApplied, metav1.ConditionTrue)
	bad := c.condition(c.name+"-bad-0", workv1.WorkApplied, metav1.ConditionFalse)
	c.hasConfigMap("beside-0", "one")
	for i, want := range []metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionFalse, metav1.ConditionTrue} {
		if got := meta.FindStatusCondition(bad.Status.ResourceStatus.Manifests[i].Conditions, workv1.WorkApplied); got == nil || got.Status != want {
			t.Errorf("condition Applied of manifest %d = %+v, want %s", i, got, want)
		}
	}
}

func testExecutor(t *testing.T, c *cluster) {
	c.run()
	name := c.create("", func(spec *workv1.ManifestWorkSpec) {
		spec.Executor = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
			Type: workv1.ExecutorSubjectTypeServiceAccount, ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: "default", Name: "somebody"},
		}}
		spec.ManifestConfigs = []workv1.ManifestConfigOption{{
			ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Name: "*", Namespace: new("*")},
			FeedbackRules:      []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{{Name: "v", Path: ".data.key"}}}},
		}}
	}, configMap("a", "one"))
	c.createConfigMap("b", "secret")
	work := c.condition(name, workv1.WorkApplied, metav1.ConditionFalse)
	if message := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied).Message; !strings.Contains(message, "executor") {
		t.Errorf("message of condition Applied = %q, want a mention of the executor", message)
	}
	c.replace(name, configMap("a", "one"), configMap("b", "work"))
	work = c.condition(name, workv1.WorkApplied, metav1.ConditionFalse)
	for _, manifest := range work.Status.ResourceStatus.Manifests {
		if len(manifest.StatusFeedbacks.Values) > 0 {
			t.Errorf("feedback of a refused ManifestWork = %+v, want none", manifest.StatusFeedbacks)
		}
	}
	if _, err := c.configMap("a"); !apierrors.IsNotFound(err) {
		t.Errorf("Get(ConfigMap a) = %v, want NotFound", err)
	}
	// If a ManifestWork is refused after it was applied, the applied objects stay.
	c.update(name, func(spec *workv1.ManifestWorkSpec) { spec.Executor = nil })
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.update(name, func(spec *workv1.ManifestWorkSpec) {
		spec.Executor = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{Type: workv1.ExecutorSubjectTypeServiceAccount}}
		spec.Workload.Manifests = spec.Workload.Manifests[1:]
	})
	c.condition(name, workv1.WorkApplied, metav1.ConditionFalse)
	if _, err := c.configMap("a"); err != nil {
		t.Errorf("Get(ConfigMap a) after the ManifestWork was refused = %v, want nil", err)
	}
	c.delete(name)
	c.gone(name)
	c.noConfigMap("a")
}

func testCRDAndCR(t *testing.T, c *cluster) {
	c.run()
	name := c.create("", nil,
		`{apiVersion: agent.example.com/v1, kind: Thing, metadata: {name: thing, namespace: NS}, spec: {size: 3}}`,
		`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.agent.example.com}, spec: {
		  group: agent.example.com, scope: Namespaced, names: {plural: things, singular: thing, kind: Thing, listKind: ThingList},
		  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}, color: {type: string, default: red}}}}}}}]}}`)
	work := c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	if got := work.Status.ResourceStatus.Manifests[0].ResourceMeta; got.Kind != "Thing" || got.Resource != "things" {
		t.Errorf("resourceMeta of manifest 0 = %+v, want kind Thing and resource things", got)
	}
	c.delete(name)
	c.gone(name)
}

// testLateNamespaceAndKind checks that the agent applies a manifest as soon as its namespace or kind
// exists, even after many failed attempts.
func testLateNamespaceAndKind(t *testing.T, c *cluster) {
	c.run()
	name := c.create("", nil,
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS-later}}`,
		`{apiVersion: late.example.com/v1, kind: Late, metadata: {name: a, namespace: NS}}`)
	var failures atomic.Int32
	c.onRequest(func(request *http.Request) error {
		if request.Method == http.MethodPost && strings.Contains(request.URL.Path, c.name+"-later/configmaps") {
			failures.Add(1)
		}
		return nil
	})
	c.condition(name, workv1.WorkApplied, metav1.ConditionFalse)
	eventually(t, "the agent has tried 5 times to create the ConfigMap", func(context.Context) error {
		if n := failures.Load(); n < 5 {
			return fmt.Errorf("attempts = %d, want at least 5", n)
		}
		return nil
	})
	before := failures.Load()
	first := c.create("-namespace", nil, `{apiVersion: v1, kind: Namespace, metadata: {name: NS-later}}`)
	c.condition(first, workv1.WorkApplied, metav1.ConditionTrue)
	eventually(t, "ConfigMap a exists in namespace "+c.name+"-later", func(ctx context.Context) error {
		_, err := c.kube.CoreV1().ConfigMaps(c.name+"-later").Get(ctx, "a", metav1.GetOptions{})
		return err
	})
	if n := failures.Load() - before; n > 3 {
		t.Errorf("further attempts = %d, want at most 3", n)
	}
	second := c.create("-crd", nil, `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: lates.late.example.com}, spec: {
	  group: late.example.com, scope: Namespaced, names: {plural: lates, singular: late, kind: Late, listKind: LateList},
	  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`)
	c.condition(second, workv1.WorkApplied, metav1.ConditionTrue)
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	for _, name := range []string{name, first, second} {
		c.delete(name)
		c.gone(name)
	}
}

// testCrashBeforeRecord checks an agent that stops after it created an object and before it recorded
// its UID. The next agent must delete the object, because its manifest was removed meanwhile.
func testCrashBeforeRecord(t *testing.T, c *cluster) {
	var created atomic.Bool
	dead := errors.New("the test fails this request")
	c.onRequest(func(request *http.Request) error {
		if created.Load() && request.Method != http.MethodGet {
			return dead
		}
		if request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, "/configmaps") {
			// This write succeeds. All later writes fail.
			created.Store(true)
		}
		return nil
	})
	c.run()
	name := c.create("", nil, configMap("a", "one"))
	c.hasConfigMap("a", "one")
	c.kill()
	record, err := c.record(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range record.Status.AppliedResources {
		if entry.UID != "" {
			t.Fatalf("entry in appliedResources = %+v, want none with a UID", entry)
		}
	}
	c.replace(name, configMap("b", "two"))
	c.onRequest(nil)
	c.run()
	c.hasConfigMap("b", "two")
	c.noConfigMap("a")
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
}

func testRoleRef(t *testing.T, c *cluster) {
	binding := `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: b, namespace: NS},
	  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ROLE}, subjects: [{kind: User, name: u}]}`
	c.run()
	name := c.create("", nil, strings.ReplaceAll(binding, "ROLE", "view"),
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r, namespace: NS}, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}`)
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.update(name, func(spec *workv1.ManifestWorkSpec) {
		spec.Workload.Manifests[0] = c.manifest(strings.ReplaceAll(binding, "ROLE", "edit"))
	})
	eventually(t, "RoleBinding b refers to ClusterRole edit", func(ctx context.Context) error {
		got, err := c.kube.RbacV1().RoleBindings(c.name).Get(ctx, "b", metav1.GetOptions{})
		if err == nil && got.RoleRef.Name != "edit" {
			err = fmt.Errorf("roleRef.name = %s, want edit", got.RoleRef.Name)
		}
		return err
	})
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)

	// The agent reverts additions of other clients to rules, because they change the permissions.
	for _, patch := range []string{
		`[{"op":"add","path":"/rules/0/resourceNames","value":["x"]}]`,
		`[{"op":"add","path":"/rules/-","value":{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}}]`,
	} {
		if _, err := c.kube.RbacV1().Roles(c.name).Patch(t.Context(), "r", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "Role r has the rules of the manifest", func(ctx context.Context) error {
			got, err := c.kube.RbacV1().Roles(c.name).Get(ctx, "r", metav1.GetOptions{})
			if err == nil && (len(got.Rules) != 1 || len(got.Rules[0].ResourceNames) > 0) {
				err = fmt.Errorf("rules = %v, want one rule without resourceNames", got.Rules)
			}
			return err
		})
	}
}

// testIdle checks that the agent sends no requests for unchanged objects, even if their ManifestWork
// changes.
func testIdle(t *testing.T, c *cluster) {
	c.run()
	name := c.create("", nil, configMap("a", "one"), configMap("b", "one"))
	work := c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.condition(name, workv1.WorkAvailable, metav1.ConditionTrue)
	marker := c.create("-marker", nil, configMap("marker", "one"))
	c.condition(marker, workv1.WorkAvailable, metav1.ConditionTrue)

	var objects atomic.Int32
	c.onRequest(func(request *http.Request) error {
		path := request.URL.Path
		if strings.HasSuffix(path, "/configmaps/a") || strings.HasSuffix(path, "/configmaps/b") {
			objects.Add(1)
		}
		return nil
	})
	// A label on the ManifestWork causes a pass, but must not cause requests for the objects.
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
	if n := objects.Load(); n > 0 {
		t.Errorf("requests for unchanged objects = %d, want 0", n)
	}
	after, err := c.works().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, condition := range work.Status.Conditions {
		if got := meta.FindStatusCondition(after.Status.Conditions, condition.Type); !got.LastTransitionTime.Equal(&condition.LastTransitionTime) {
			t.Errorf("lastTransitionTime of condition %s = %s, want %s", condition.Type, got.LastTransitionTime, condition.LastTransitionTime)
		}
	}
}

// testConflictingManifests checks that two ManifestWorks with different content for one object cause
// a limited number of writes.
func testConflictingManifests(t *testing.T, c *cluster) {
	c.run()
	var writes atomic.Int32
	c.onRequest(func(request *http.Request) error {
		if request.Method == http.MethodPut && strings.HasSuffix(request.URL.Path, "/configmaps/a") {
			writes.Add(1)
		}
		return nil
	})
	first := c.create("-1", nil, configMap("a", "one"))
	second := c.create("-2", nil, configMap("a", "two"))
	c.condition(first, workv1.WorkApplied, metav1.ConditionTrue)
	c.condition(second, workv1.WorkApplied, metav1.ConditionTrue)
	other := c.create("-other", nil, configMap("b", "one"))
	c.condition(other, workv1.WorkApplied, metav1.ConditionTrue)
	c.delete(first)
	c.gone(first)
	c.hasConfigMap("a", "two")
	if n := writes.Load(); n > 60 {
		t.Errorf("writes of ConfigMap a = %d, want at most 60", n)
	}
}
