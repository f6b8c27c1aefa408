package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

var executorTests = map[string]func(*testing.T, *cluster){
	"applies-as":           testAppliesAs,
	"all-or-nothing":       testAllOrNothing,
	"revoked":              testRevoked,
	"no-permission":        testNoPermission,
	"create-only-as":       testCreateOnlyAs,
	"no-executor":          testNoExecutor,
	"idle-as":              testIdleAs,
	"special-kinds":        testSpecialKinds,
	"late-kind":            testLateKind,
	"complete-refused":     testCompleteRefused,
	"role-ref-as":          testRoleRefAs,
	"adopted-as":           testAdoptedAs,
	"permission-as":        testPermissionAs,
	"admission":            testAdmission,
	"idle-executor-choice": testIdleExecutorChoice,
	"never-deleted":        testNeverDeleted,
	"cut-off-write":        testCutOffWrite,
	"refused-review-error": testRefusedReviewError,
	"revoked-midway":       testRevokedMidway,
	"fairness":             testFairness,
	"time-slice":           testTimeSlice,
}

// actsAs sets the executor of a ManifestWork to the ServiceAccount "worker" in the namespace of the
// test. The ServiceAccount does not exist.
func (c *cluster) actsAs(more ...func(*workv1.ManifestWorkSpec)) func(*workv1.ManifestWorkSpec) {
	return func(spec *workv1.ManifestWorkSpec) {
		spec.Executor = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
			Type:           workv1.ExecutorSubjectTypeServiceAccount,
			ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: c.name, Name: "worker"},
		}}
		for _, change := range more {
			change(spec)
		}
	}
}

// reports adds a feedback rule and a condition rule for the value of ConfigMaps.
func reports(spec *workv1.ManifestWorkSpec) {
	spec.ManifestConfigs = append(spec.ManifestConfigs, workv1.ManifestConfigOption{
		ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Name: "*", Namespace: new("*")},
		FeedbackRules:      []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{{Name: "key", Path: ".data.key"}}}},
		ConditionRules: []workv1.ConditionRule{{
			Type: workv1.CelConditionExpressionsType, Condition: "Read", CelExpressions: []string{"true"}, MessageExpression: new("object.data.key"),
		}},
	})
}

const allVerbs = "get,create,update,patch,delete"

// grant allows the executor to use verbs on a resource of the core group in the namespace of the
// test, and nothing else.
func (c *cluster) grant(resource, verbs string) {
	c.t.Helper()
	c.grantRules(rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource}, Verbs: strings.Split(verbs, ",")})
}

// grantRules replaces the rules of the executor's Role.
func (c *cluster) grantRules(rules ...rbacv1.PolicyRule) {
	c.t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Rules: rules}
	if _, err := c.kube.RbacV1().Roles(c.name).Create(c.t.Context(), role, metav1.CreateOptions{}); err == nil {
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "worker"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "worker"},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: c.name, Name: "worker"}},
		}
		if _, err := c.kube.RbacV1().RoleBindings(c.name).Create(c.t.Context(), binding, metav1.CreateOptions{}); err != nil {
			c.t.Fatal(err)
		}
		return
	} else if !apierrors.IsAlreadyExists(err) {
		c.t.Fatal(err)
	}
	if _, err := c.kube.RbacV1().Roles(c.name).Update(c.t.Context(), role, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) revoke() {
	c.t.Helper()
	if err := c.kube.RbacV1().RoleBindings(c.name).Delete(c.t.Context(), "worker", metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
	if err := c.kube.RbacV1().Roles(c.name).Delete(c.t.Context(), "worker", metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// seen is one request of the agent to the managed cluster.
type seen struct{ method, path, as string }

// recorder records the requests of the agent to the managed cluster.
type recorder struct {
	mu       sync.Mutex
	requests []seen
}

// recordRequests starts to record requests.
func (c *cluster) recordRequests() *recorder {
	r := &recorder{}
	c.onRequest(func(request *http.Request) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.requests = append(r.requests, seen{request.Method, request.URL.Path, request.Header.Get("Impersonate-User")})
		return nil
	})
	return r
}

// matching returns the recorded requests that match.
func (r *recorder) matching(match func(seen) bool) []seen {
	r.mu.Lock()
	defer r.mu.Unlock()
	var matching []seen
	for _, request := range r.requests {
		if match(request) {
			matching = append(matching, request)
		}
	}
	return matching
}

func (c *cluster) aboutConfigMaps(request seen) bool {
	return strings.Contains(request.path, "/namespaces/"+c.name+"/configmaps")
}

func isReview(request seen) bool { return strings.HasSuffix(request.path, "/subjectaccessreviews") }

func appliedOf(work *workv1.ManifestWork, ordinal int) *metav1.Condition {
	return meta.FindStatusCondition(work.Status.ResourceStatus.Manifests[ordinal].Conditions, workv1.WorkApplied)
}

// testAppliesAs checks that the agent reads and writes the objects of a ManifestWork as its executor,
// and removes them as itself.
func testAppliesAs(t *testing.T, c *cluster) {
	requests := c.recordRequests()
	c.grant("configmaps", allVerbs)
	c.run()
	name := c.create("", c.actsAs(reports), configMap("a", "one"), configMap("b", "one"))
	work := c.condition(name, "Read", metav1.ConditionTrue)
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	if values := work.Status.ResourceStatus.Manifests[0].StatusFeedbacks.Values; len(values) != 1 || *values[0].Value.String != "one" {
		t.Errorf("feedback = %+v, want one", values)
	}
	// Drift is repaired as the executor as well.
	patch := []byte(`{"data":{"key":"drift"}}`)
	if _, err := c.kube.CoreV1().ConfigMaps(c.name).Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.hasConfigMap("a", "one")
	c.replace(name, configMap("a", "two"))
	c.hasConfigMap("a", "two")
	c.noConfigMap("b")
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	as := "system:serviceaccount:" + c.name + ":worker"
	mine := requests.matching(func(r seen) bool { return c.aboutConfigMaps(r) && r.as == as })
	if len(mine) == 0 {
		t.Error("requests as the executor = 0, want at least 1")
	}
	for _, other := range requests.matching(func(r seen) bool { return c.aboutConfigMaps(r) && r.as != as }) {
		if !strings.HasSuffix(other.path, "/configmaps/b") || other.method != http.MethodGet && other.method != http.MethodDelete {
			t.Errorf("request as the agent = %+v, want only GET and DELETE of ConfigMap b", other)
		}
	}
	c.delete(name)
	c.gone(name)
	c.noConfigMap("a")
}

// testAllOrNothing checks that the agent applies none of the manifests if the executor lacks one
// permission, and that the condition contains the missing rule. If the rule is granted, the agent
// applies the unchanged ManifestWork.
func testAllOrNothing(t *testing.T, c *cluster) {
	requests := c.recordRequests()
	c.grant("configmaps", allVerbs)
	c.run()
	manifests := []string{`{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: NS}}`}
	for i := range 10 {
		manifests = append(manifests, configMap(fmt.Sprintf("a-%d", i), "one"))
	}
	name := c.create("", c.actsAs(), manifests...)
	work := c.condition(name, workv1.WorkApplied, metav1.ConditionFalse)
	denied := appliedOf(work, 0)
	if denied.Reason != workv1.ReasonAppliedManifestFailed {
		t.Errorf("reason of manifest 0 = %s, want %s", denied.Reason, workv1.ReasonAppliedManifestFailed)
	}
	for _, part := range []string{"not allowed to apply the resource", "secrets", c.name + "/worker", "create", "get"} {
		if !strings.Contains(denied.Message, part) {
			t.Errorf("message of manifest 0 = %q, want a mention of %q", denied.Message, part)
		}
	}
	if strings.Contains(denied.Message, "configmaps") {
		t.Errorf("message of manifest 0 = %q, want no mention of configmaps", denied.Message)
	}
	for i := range 10 {
		if got := appliedOf(work, i+1); got.Status != metav1.ConditionFalse || !strings.Contains(got.Message, "1 of 11 manifests") {
			t.Errorf("condition Applied of manifest %d = %+v, want False with a mention of 1 of 11 manifests", i+1, got)
		}
	}
	c.condition(name, workv1.WorkAvailable, metav1.ConditionUnknown)
	if len(work.Finalizers) > 0 {
		t.Errorf("finalizers = %v, want none", work.Finalizers)
	}
	if _, err := c.record(name); !apierrors.IsNotFound(err) {
		t.Errorf("Get(AppliedManifestWork) = %v, want NotFound", err)
	}
	if touched := requests.matching(func(r seen) bool {
		return strings.Contains(r.path, "/namespaces/"+c.name+"/")
	}); len(touched) > 0 {
		t.Errorf("requests for objects in the namespace of the test = %+v, want none", touched)
	}
	c.grant("*", allVerbs)
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.condition(name, workv1.WorkAvailable, metav1.ConditionTrue)
	c.delete(name)
	c.gone(name)
}

// testRevoked checks that the revocation of a permission ends the repair of drift and the feedback.
// The applied objects stay, and the agent updates them again after the permission is granted again.
func testRevoked(t *testing.T, c *cluster) {
	c.grant("configmaps", allVerbs)
	c.run()
	name := c.create("", c.actsAs(reports), configMap("a", "one"))
	c.condition(name, "Read", metav1.ConditionTrue)
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	requests := c.recordRequests()
	c.revoke()
	work := c.condition(name, workv1.WorkApplied, metav1.ConditionFalse)
	c.condition(name, workv1.WorkAvailable, metav1.ConditionUnknown)
	manifest := work.Status.ResourceStatus.Manifests[0]
	if len(manifest.StatusFeedbacks.Values) > 0 || meta.FindStatusCondition(manifest.Conditions, "Read") != nil || meta.FindStatusCondition(work.Status.Conditions, "Read") != nil {
		t.Errorf("status = %+v, want no feedback and no condition Read", work.Status)
	}
	if len(work.Finalizers) == 0 {
		t.Errorf("finalizers = %v, want %s", work.Finalizers, workv1.ManifestWorkFinalizer)
	}
	patch := []byte(`{"data":{"key":"drift"}}`)
	if _, err := c.kube.CoreV1().ConfigMaps(c.name).Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	// From now on, a pass over the ManifestWork must not change the object.
	c.replace(name, configMap("a", "two"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionFalse)
	if touched := requests.matching(c.aboutConfigMaps); len(touched) > 0 {
		t.Errorf("requests for ConfigMaps = %+v, want none", touched)
	}
	c.hasConfigMap("a", "drift")
	c.grant("configmaps", allVerbs)
	c.hasConfigMap("a", "two")
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.condition(name, "Read", metav1.ConditionTrue)
	// The objects are deleted with their ManifestWork, even if the executor has lost its permissions.
	c.revoke()
	c.condition(name, workv1.WorkApplied, metav1.ConditionFalse)
	c.delete(name)
	c.gone(name)
	c.noConfigMap("a")
}

// testNoPermission checks that the agent reads no object that the executor is not allowed to read.
func testNoPermission(t *testing.T, c *cluster) {
	requests := c.recordRequests()
	c.createConfigMap("a", "secret")
	c.run()
	name := c.create("", c.actsAs(strategy("configmaps", workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeReadOnly}), func(spec *workv1.ManifestWorkSpec) {
		reports(spec)
		spec.ManifestConfigs[1].ResourceIdentifier = spec.ManifestConfigs[0].ResourceIdentifier
	}), configMap("a", "ignored"))
	work := c.condition(name, workv1.WorkApplied, metav1.ConditionFalse)
	if text, _ := json.Marshal(work.Status); strings.Contains(string(text), "secret\"") {
		t.Errorf("status = %s, want no value of the ConfigMap", text)
	}
	if touched := requests.matching(c.aboutConfigMaps); len(touched) > 0 {
		t.Errorf("requests for ConfigMaps = %+v, want none", touched)
	}
	// The strategy ReadOnly requires only get.
	c.grant("configmaps", "get")
	work = c.condition(name, "Read", metav1.ConditionTrue)
	if values := work.Status.ResourceStatus.Manifests[0].StatusFeedbacks.Values; len(values) != 1 || *values[0].Value.String != "secret" {
		t.Errorf("feedback = %+v, want secret", values)
	}
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
}

// testCreateOnlyAs checks that the strategy CreateOnly requires no permission to update. An existing
// object does not change, and stays when the ManifestWork is deleted.
func testCreateOnlyAs(t *testing.T, c *cluster) {
	c.grant("configmaps", "get,create,delete")
	theirs := c.createConfigMap("theirs", "other")
	c.run()
	name := c.create("", c.actsAs(strategy("configmaps", workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeCreateOnly})),
		configMap("theirs", "one"), configMap("ours", "one"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.hasConfigMap("ours", "one")
	if got := c.hasConfigMap("theirs", "other"); got.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("ConfigMap theirs = %+v, want resourceVersion %s", got, theirs.ResourceVersion)
	}
	c.kill()
	c.run()
	c.replace(name, configMap("theirs", "two"), configMap("ours", "two"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.hasConfigMap("ours", "one")
	c.delete(name)
	c.gone(name)
	c.noConfigMap("ours")
	c.hasConfigMap("theirs", "other")
}

// testNoExecutor checks that the agent applies a ManifestWork without executor as itself, without
// SubjectAccessReviews.
func testNoExecutor(t *testing.T, c *cluster) {
	requests := c.recordRequests()
	c.run()
	name := c.create("", nil, configMap("a", "one"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	if others := requests.matching(func(r seen) bool {
		return isReview(r) || r.as != "" || strings.Contains(r.path, "/rbac.authorization.k8s.io/")
	}); len(others) > 0 {
		t.Errorf("reviews, requests for RBAC and requests with impersonation = %+v, want none", others)
	}
	// As soon as the ManifestWork names an executor, the agent acts as the executor.
	c.update(name, c.actsAs())
	c.condition(name, workv1.WorkApplied, metav1.ConditionFalse)
	c.hasConfigMap("a", "one")
	c.update(name, func(spec *workv1.ManifestWorkSpec) { spec.Executor = nil })
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.delete(name)
	c.gone(name)
}

// testIdleAs checks that a pass over a ManifestWork without changes sends no request, unless the last
// check of the permissions is too old.
func testIdleAs(t *testing.T, c *cluster) {
	c.grant("configmaps", allVerbs)
	c.run()
	name := c.create("", c.actsAs(), configMap("a", "one"), configMap("b", "one"))
	c.condition(name, workv1.WorkAvailable, metav1.ConditionTrue)
	marker := c.create("-marker", c.actsAs(), configMap("marker", "one"))
	c.condition(marker, workv1.WorkAvailable, metav1.ConditionTrue)
	requests := c.recordRequests()
	for range 5 {
		c.label(name)
	}
	if asked := requests.matching(func(r seen) bool { return isReview(r) || c.aboutConfigMaps(r) }); len(asked) > 0 {
		t.Errorf("reviews and requests for ConfigMaps = %+v, want none", asked)
	}
}

// label changes a label of a ManifestWork, and waits until the agent has copied it to the
// AppliedManifestWork.
func (c *cluster) label(name string) {
	c.t.Helper()
	value := fmt.Sprint(c.runs.Add(1))
	if _, err := c.works().Patch(c.t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"`+value+`"}}}`), metav1.PatchOptions{}); err != nil {
		c.t.Fatal(err)
	}
	eventually(c.t, "the AppliedManifestWork has the label", func(context.Context) error {
		record, err := c.record(name)
		if err == nil && record.Labels["x"] != value {
			err = fmt.Errorf("label x = %q, want %q", record.Labels["x"], value)
		}
		return err
	})
}

// testLateKind checks a manifest of a kind that is not served yet. The agent applies the other
// manifests, and checks the permissions for this one as soon as the kind is served.
func testLateKind(t *testing.T, c *cluster) {
	c.grant("configmaps", allVerbs)
	c.run()
	name := c.create("", c.actsAs(), configMap("a", "one"), `{apiVersion: executor.example.com/v1, kind: Tardy, metadata: {name: a, namespace: NS}}`)
	work := c.condition(name, workv1.WorkApplied, metav1.ConditionFalse)
	c.hasConfigMap("a", "one")
	if got := appliedOf(work, 1); got.Status != metav1.ConditionFalse || !strings.Contains(got.Message, "does not serve") {
		t.Errorf("condition Applied of manifest 1 = %+v, want False with a mention of \"does not serve\"", got)
	}
	crd := c.create("-crd", nil, `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: tardies.executor.example.com}, spec: {
	  group: executor.example.com, scope: Namespaced, names: {plural: tardies, singular: tardy, kind: Tardy, listKind: TardyList},
	  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`)
	c.condition(crd, workv1.WorkApplied, metav1.ConditionTrue)
	eventually(t, "manifest 1 is denied", func(ctx context.Context) error {
		work, err := c.works().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := appliedOf(work, 1); !strings.Contains(got.Message, "not allowed to apply the resource executor.example.com tardies") {
			return fmt.Errorf("condition Applied of manifest 1 = %+v", got)
		}
		return nil
	})
	c.grantRules(rbacv1.PolicyRule{APIGroups: []string{"", "executor.example.com"}, Resources: []string{"configmaps", "tardies"}, Verbs: strings.Split(allVerbs, ",")})
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.delete(name)
	c.gone(name)
}

// testCompleteRefused checks that the agent only reads the object of a complete manifest, and does not
// apply it again after the executor loses and regains its permissions.
func testCompleteRefused(t *testing.T, c *cluster) {
	c.grant("configmaps", allVerbs)
	c.run()
	name := c.create("", c.actsAs(reports, func(spec *workv1.ManifestWorkSpec) {
		spec.ManifestConfigs[0].ConditionRules = []workv1.ConditionRule{{
			Type: workv1.CelConditionExpressionsType, Condition: workv1.WorkComplete,
			CelExpressions: []string{`object.data.key == "done"`}, MessageExpression: new(`"it is " + object.data.key`),
		}}
	}), configMap("a", "doing"))
	c.condition(name, workv1.WorkComplete, metav1.ConditionFalse)
	patch := []byte(`{"data":{"key":"done"}}`)
	if _, err := c.kube.CoreV1().ConfigMaps(c.name).Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.condition(name, workv1.WorkComplete, metav1.ConditionTrue)
	// A complete manifest requires no permission to write.
	c.grant("configmaps", "get")
	c.label(name)
	c.condition(name, workv1.WorkComplete, metav1.ConditionTrue)
	c.condition(name, workv1.WorkAvailable, metav1.ConditionTrue)
	c.revoke()
	work := c.condition(name, workv1.WorkAvailable, metav1.ConditionUnknown)
	manifest := work.Status.ResourceStatus.Manifests[0]
	if complete := meta.FindStatusCondition(manifest.Conditions, workv1.WorkComplete); complete == nil || complete.Status != metav1.ConditionTrue || strings.Contains(complete.Message, "it is done") {
		t.Errorf("condition Complete = %+v, want True without the value of the ConfigMap", complete)
	}
	if len(manifest.StatusFeedbacks.Values) > 0 {
		t.Errorf("feedback = %+v, want none", manifest.StatusFeedbacks.Values)
	}
	if err := c.kube.CoreV1().ConfigMaps(c.name).Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.grant("configmaps", allVerbs)
	c.condition(name, workv1.WorkAvailable, metav1.ConditionFalse)
	if _, err := c.configMap("a"); !apierrors.IsNotFound(err) {
		t.Errorf("Get(ConfigMap a) = %v, want NotFound", err)
	}
	c.delete(name)
	c.gone(name)
}
