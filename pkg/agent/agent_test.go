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

// TestAgent runs the agent against a real cluster. The subtests share it; each
// has its own namespaces and its own agent.
func TestAgent(t *testing.T) {
	f := newFixture(t)
	for name, test := range map[string]func(*testing.T, *cluster){
		"applies":            testApplies,
		"drift":              testDrift,
		"left":               testLeft,
		"formerly-given":     testFormerlyGiven,
		"adopted":            testAdopted,
		"orphan":             testOrphan,
		"selectively-orphan": testSelectivelyOrphan,
		"shared":             testShared,
		"replaced-by-other":  testReplacedByOther,
		"bad-work":           testBadWork,
		"executor":           testExecutor,
		"crd-and-cr":         testCRDAndCR,
		"deleted-while-down": testDeletedWhileDown,
		"vanished":           testVanished,
		"lost-by-the-hub":    testLostByTheHub,
		"late":               testLate,
		"other-name":         testOtherName,
		"crash":              testCrash,
		"role-ref":           testRoleRef,
		"create-only":        testCreateOnly,
		"read-only":          testReadOnly,
		"server-side":        testServerSide,
		"feedback":           testFeedback,
		"complete":           testComplete,
		"idle":               testIdle,
		"fight":              testFight,
		"crash-anywhere":     testCrashAnywhere,
		"crash-in-removal":   testCrashInRemoval,
		"restart":            testRestart,
		"record-deleted":     testRecordDeleted,
		"unresolved":         testUnresolved,

		"permission-takeover":      testPermissionTakeover,
		"permission-own-access":    testPermissionOwnAccess,
		"permission-equal":         testPermissionEqual,
		"permission-shared":        testPermissionShared,
		"permission-role-replaced": testPermissionRoleReplaced,
		"permission-recreated":     testPermissionRecreated,
		"permission-race":          testPermissionRace,
		"permission-crash":         testPermissionCrash,
		"permission-orphaned":      testPermissionOrphaned,
		"permission-only-looks":    testPermissionOnlyLooks,
		"permission-squatting":     testPermissionSquatting,
		"permission-contested":     testPermissionContested,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, f.cluster(t))
		})
	}
}

func testApplies(t *testing.T, c *cluster) {
	c.run()
	name := c.create("", nil, configMap("a", "one"),
		`{apiVersion: v1, kind: ServiceAccount, metadata: {name: sa, namespace: NS}}`)
	work := c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.condition(name, workv1.WorkAvailable, metav1.ConditionTrue)
	if len(work.Status.ResourceStatus.Manifests) != 2 {
		t.Fatalf("status of %d manifests", len(work.Status.ResourceStatus.Manifests))
	}
	first := work.Status.ResourceStatus.Manifests[0]
	if got, want := first.ResourceMeta, (workv1.ManifestResourceMeta{Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Name: "a", Namespace: c.name}); got != want {
		t.Errorf("resourceMeta is %+v, want %+v", got, want)
	}
	for _, manifest := range work.Status.ResourceStatus.Manifests {
		for _, condition := range manifest.Conditions {
			if condition.ObservedGeneration != work.Generation {
				t.Errorf("%s of manifest %d is about generation %d", condition.Type, manifest.ResourceMeta.Ordinal, condition.ObservedGeneration)
			}
		}
	}
	if len(work.Finalizers) != 1 || work.Finalizers[0] != workv1.ManifestWorkFinalizer {
		t.Errorf("finalizers are %v", work.Finalizers)
	}
	record, err := c.record(name)
	if err != nil {
		t.Fatal(err)
	}
	if len(record.Status.AppliedResources) != 2 {
		t.Fatalf("recorded: %+v", record.Status.AppliedResources)
	}
	for _, entry := range record.Status.AppliedResources {
		if entry.UID == "" {
			t.Errorf("%s %s is recorded without a UID", entry.Resource, entry.Name)
		}
	}
	got := c.hasConfigMap("a", "one")
	if len(got.OwnerReferences) != 1 || got.OwnerReferences[0].UID != record.UID {
		t.Errorf("owners are %v", got.OwnerReferences)
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
	eventually(t, "the new UID is recorded", func(context.Context) error {
		record, err := c.record(name)
		if err != nil {
			return err
		}
		for _, entry := range record.Status.AppliedResources {
			if entry.UID == string(b.UID) {
				return nil
			}
		}
		return fmt.Errorf("recorded: %+v", record.Status.AppliedResources)
	})
}

func testBadWork(t *testing.T, c *cluster) {
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
			t.Errorf("Applied of manifest %d is %+v, want %s", i, got, want)
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
		t.Errorf("message: %s", message)
	}
	c.replace(name, configMap("a", "one"), configMap("b", "work"))
	work = c.condition(name, workv1.WorkApplied, metav1.ConditionFalse)
	for _, manifest := range work.Status.ResourceStatus.Manifests {
		if len(manifest.StatusFeedbacks.Values) > 0 {
			t.Errorf("feedback of a work that may not act: %+v", manifest.StatusFeedbacks)
		}
	}
	if _, err := c.configMap("a"); !apierrors.IsNotFound(err) {
		t.Errorf("applied: %v", err)
	}
	// A refused work that was applied before keeps what it applied.
	c.update(name, func(spec *workv1.ManifestWorkSpec) { spec.Executor = nil })
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.update(name, func(spec *workv1.ManifestWorkSpec) {
		spec.Executor = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{Type: workv1.ExecutorSubjectTypeServiceAccount}}
		spec.Workload.Manifests = spec.Workload.Manifests[1:]
	})
	c.condition(name, workv1.WorkApplied, metav1.ConditionFalse)
	if _, err := c.configMap("a"); err != nil {
		t.Errorf("a refused work lost what it had applied: %v", err)
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
		t.Errorf("manifest 0 is %+v", got)
	}
	c.delete(name)
	c.gone(name)
}

// testLate: a work whose namespace or kind comes late is applied when it comes,
// however long it has been tried in vain.
func testLate(t *testing.T, c *cluster) {
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
	eventually(t, "it has been tried in vain several times", func(context.Context) error {
		if n := failures.Load(); n < 5 {
			return fmt.Errorf("%d times", n)
		}
		return nil
	})
	before := failures.Load()
	first := c.create("-namespace", nil, `{apiVersion: v1, kind: Namespace, metadata: {name: NS-later}}`)
	c.condition(first, workv1.WorkApplied, metav1.ConditionTrue)
	eventually(t, "the object is in its namespace", func(ctx context.Context) error {
		_, err := c.kube.CoreV1().ConfigMaps(c.name+"-later").Get(ctx, "a", metav1.GetOptions{})
		return err
	})
	if n := failures.Load() - before; n > 3 {
		t.Errorf("%d more tries", n)
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

// testCrash: the agent dies between creating an object and recording it, and
// the object leaves the work before the agent is back.
func testCrash(t *testing.T, c *cluster) {
	var created atomic.Bool
	dead := errors.New("the agent is dead")
	c.onRequest(func(request *http.Request) error {
		if created.Load() && request.Method != http.MethodGet {
			return dead
		}
		if request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, "/configmaps") {
			// This one still gets through, and its answer is the last thing the agent sees.
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
			t.Fatalf("already recorded: %+v", entry)
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
	eventually(t, "the binding has the new role", func(ctx context.Context) error {
		got, err := c.kube.RbacV1().RoleBindings(c.name).Get(ctx, "b", metav1.GetOptions{})
		if err == nil && got.RoleRef.Name != "edit" {
			err = fmt.Errorf("it is %s", got.RoleRef.Name)
		}
		return err
	})
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)

	// What others add to a rule changes what it grants.
	for _, patch := range []string{
		`[{"op":"add","path":"/rules/0/resourceNames","value":["x"]}]`,
		`[{"op":"add","path":"/rules/-","value":{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}}]`,
	} {
		if _, err := c.kube.RbacV1().Roles(c.name).Patch(t.Context(), "r", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the rules are as given", func(ctx context.Context) error {
			got, err := c.kube.RbacV1().Roles(c.name).Get(ctx, "r", metav1.GetOptions{})
			if err == nil && (len(got.Rules) != 1 || len(got.Rules[0].ResourceNames) > 0) {
				err = fmt.Errorf("they are %v", got.Rules)
			}
			return err
		})
	}
}

// testIdle: once all is as it should be, the agent makes no request that the
// managed cluster would notice, whatever makes it look.
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
	// A label on the work is a reason to look at it, but not at its objects.
	if _, err := c.works().Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the label is on the record", func(context.Context) error {
		record, err := c.record(name)
		if err == nil && record.Labels["x"] != "y" {
			err = errors.New("it is not")
		}
		return err
	})
	if n := objects.Load(); n > 0 {
		t.Errorf("%d requests for objects that did not change", n)
	}
	after, err := c.works().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, condition := range work.Status.Conditions {
		if got := meta.FindStatusCondition(after.Status.Conditions, condition.Type); !got.LastTransitionTime.Equal(&condition.LastTransitionTime) {
			t.Errorf("%s changed its time", condition.Type)
		}
	}
}

// testFight: two works that want different things of one object must not keep
// the cluster busy.
func testFight(t *testing.T, c *cluster) {
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
		t.Errorf("%d writes", n)
	}
}
