package agent_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// testWildcards checks that manifestConfigs entries match by wildcards. For each field, the first
// matching entry that sets it applies.
func testWildcards(t *testing.T, c *cluster) {
	c.run()
	pattern := func(name, namespace string, change func(*workv1.ManifestConfigOption)) workv1.ManifestConfigOption {
		option := c.configOf(name, change)
		option.ResourceIdentifier.Namespace = new(namespace)
		return option
	}
	name := c.create("", configs(
		pattern("team-*-web", "*", func(o *workv1.ManifestConfigOption) { o.FeedbackRules = values("first", ".data.key") }),
		pattern("team-*", c.name[:3]+"*", func(o *workv1.ManifestConfigOption) {
			o.FeedbackRules = values("second", ".data.key")
			o.ConditionRules = []workv1.ConditionRule{celRule("Team", `true`)}
		}),
		pattern("*", "no-*", func(o *workv1.ManifestConfigOption) { o.FeedbackRules = values("elsewhere", ".data.key") }),
		pattern("*", "*", func(o *workv1.ManifestConfigOption) {
			o.UpdateStrategy = &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeCreateOnly}
			o.FeedbackRules = values("last", ".data.key")
		}),
	), configMap("team-a-web", "one"), configMap("team-a", "one"), configMap("a", "one"))
	c.feedbackOf(name, 0, "first=String one")
	c.feedbackOf(name, 1, "second=String one")
	c.feedbackOf(name, 2, "last=String one")
	c.has(name, 0, "Team=True: ConditionRuleEvaluated")
	c.has(name, 1, "Team=True: ConditionRuleEvaluated")
	c.replace(name, configMap("team-a-web", "two"), configMap("team-a", "two"), configMap("b", "two"))
	c.hasConfigMap("b", "two")
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.hasConfigMap("team-a-web", "one")
}

// testCompleteOneByOne checks that the agent does not update the object of a complete manifest, while
// it still applies the others.
func testCompleteOneByOne(t *testing.T, c *cluster) {
	c.run()
	done := func(o *workv1.ManifestConfigOption) {
		o.ConditionRules = []workv1.ConditionRule{celRule(workv1.WorkComplete, `has(object.data.done)`)}
	}
	name := c.create("", configs(c.configOf("*", done)), configMap("a", "one"), configMap("b", "one"))
	c.has(name, -1, "Complete=False: ConditionRulesAggregated")
	finish := func(name string) {
		t.Helper()
		if _, err := c.kube.CoreV1().ConfigMaps(c.name).Patch(t.Context(), name, types.MergePatchType, []byte(`{"data":{"done":"yes"}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	finish("a")
	c.has(name, 0, "Complete=True: ConditionRuleEvaluated")
	c.has(name, -1, "Complete=False: ConditionRulesAggregated")
	c.replace(name, configMap("a", "two"), configMap("b", "two"))
	c.hasConfigMap("b", "two")
	c.condition(name, workv1.WorkComplete, metav1.ConditionFalse)
	c.hasConfigMap("a", "one")
	finish("b")
	c.condition(name, workv1.WorkComplete, metav1.ConditionTrue)
}

// testPodFinishes checks that a Pod that has succeeded is complete, and that the agent does not
// recreate it after its deletion.
func testPodFinishes(t *testing.T, c *cluster) {
	c.run()
	name := c.create("", configs(workv1.ManifestConfigOption{
		ResourceIdentifier: workv1.ResourceIdentifier{Resource: "pods", Name: "p", Namespace: new(c.name)},
		FeedbackRules:      []workv1.FeedbackRule{{Type: workv1.WellKnownStatusType}},
		ConditionRules:     []workv1.ConditionRule{{Type: workv1.WellKnownConditionsType, Condition: workv1.WorkComplete}},
	}), `{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: NS}, spec: {restartPolicy: Never, automountServiceAccountToken: false, containers: [{name: c, image: i}]}}`)
	c.has(name, 0, "Applied=True: AppliedManifestComplete", "Complete=False: ConditionRuleEvaluated")
	pods := c.kube.CoreV1().Pods(c.name)
	if _, err := pods.Patch(t.Context(), "p", types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	c.condition(name, workv1.WorkComplete, metav1.ConditionTrue)
	c.feedbackOf(name, 0, "PodPhase=String Succeeded")
	if err := pods.Delete(t.Context(), "p", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	c.has(name, 0, "Available=False: ResourceNotAvailable", "Complete=True: ConditionRuleEvaluated", "Applied=True: AppliedManifestComplete")
	c.feedbackOf(name, 0, "PodPhase=String Succeeded")
	if _, err := pods.Get(t.Context(), "p", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get(Pod p) after its deletion = %v, want NotFound", err)
	}
}

func testDeploymentStatus(t *testing.T, c *cluster) {
	c.run()
	name := c.create("", configs(workv1.ManifestConfigOption{
		ResourceIdentifier: workv1.ResourceIdentifier{Group: new("apps"), Resource: "deployments", Name: "d", Namespace: new(c.name)},
		FeedbackScrapeType: workv1.FeedbackWatchType,
		FeedbackRules:      []workv1.FeedbackRule{{Type: workv1.WellKnownStatusType}},
	}), `{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: NS}, spec: {replicas: 3, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`)
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	status := []byte(`{"status":{"replicas":3,"readyReplicas":2,"availableReplicas":1}}`)
	if _, err := c.kube.AppsV1().Deployments(c.name).Patch(t.Context(), "d", types.MergePatchType, status, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	c.feedbackOf(name, 0, "ReadyReplicas=Integer 2", "Replicas=Integer 3", "AvailableReplicas=Integer 1")
}

func testFeedbackTypes(t *testing.T, c *cluster) {
	c.run()
	name := c.create("", configs(c.configOf("a", func(o *workv1.ManifestConfigOption) {
		o.FeedbackRules = values("text", ".data.key", "truth", ".immutable", "raw", ".metadata.labels", "long", ".data.long", "rawlong", ".data",
			"none", ".data.none", "count", ".metadata.ownerReferences[0].controller")
	})), `{apiVersion: v1, kind: ConfigMap, immutable: true, metadata: {name: a, namespace: NS, labels: {x: z}}, data: {key: one, long: "`+strings.Repeat("x", 2000)+`"}}`)
	c.has(name, 0, "Applied=True: AppliedManifestComplete", "StatusFeedbackSynced=False: StatusFeedbackSyncFailed")
	c.feedbackOf(name, 0, "text=String one", "truth=Boolean true", `raw=JsonRaw {"x":"z"}`, "long=String "+strings.Repeat("x", 2000))
}

// testFeedbackAllowed checks that an agent with FeedbackJSONPaths reports no other fields of objects,
// neither as feedback with any form of JSON path nor in conditions.
func testFeedbackAllowed(t *testing.T, c *cluster) {
	c.feedbackPaths = []string{".status", ".metadata.labels"}
	c.run()
	if _, err := c.kube.CoreV1().Secrets(c.name).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "s", Labels: map[string]string{"a": "b"}}, StringData: map[string]string{"password": "hunter2"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	name := c.create("", configs(workv1.ManifestConfigOption{
		ResourceIdentifier: workv1.ResourceIdentifier{Resource: "secrets", Name: "s", Namespace: new(c.name)},
		UpdateStrategy:     &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeReadOnly},
		FeedbackRules: values("label", ".metadata.labels.a", "plain", ".data.password", "quoted", "['data']['password']", "any", ".*.password",
			"deep", "..password", "whole", "$", "union", "['metadata','data']"),
		ConditionRules: []workv1.ConditionRule{
			celRule("Seen", `"data" in object`),
			{Type: workv1.CelConditionExpressionsType, Condition: "Told", CelExpressions: []string{"true"}, MessageExpression: new(`object.data.password`)},
		},
	}), `{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: NS}}`)
	work := c.has(name, 0, "Applied=True: AppliedManifestComplete", "StatusFeedbackSynced=False: StatusFeedbackSyncFailed",
		"Seen=False: ConditionRuleEvaluated", "Told=True: ConditionRuleEvaluated")
	c.feedbackOf(name, 0, "label=String b")
	manifest := work.Status.ResourceStatus.Manifests[0]
	if message := meta.FindStatusCondition(manifest.Conditions, workv1.ManifestStatusFeedbackSynced).Message; !strings.Contains(message, "plain: the agent reports only fields within .status, .metadata.labels") {
		t.Errorf("message of condition StatusFeedbackSynced = %q, want the allowed fields", message)
	}
	// aHVudGVyMg== is the base64 of the password.
	if text := fmt.Sprintf("%+v", work.Status); strings.Contains(text, "hunter2") || strings.Contains(text, "aHVudGVyMg") {
		t.Errorf("status = %s, want no value of the Secret", text)
	}
}

// testIgnoreByPointer checks that the agent applies fields that are ignored by JSON pointer once, and
// then keeps the changes of other clients.
func testIgnoreByPointer(t *testing.T, c *cluster) {
	c.run()
	name := c.create("", strategy("configmaps", workv1.UpdateStrategy{
		Type: workv1.UpdateStrategyTypeServerSideApply,
		ServerSideApply: &workv1.ServerSideApplyConfig{Force: new(true), IgnoreFields: []workv1.IgnoreField{
			{JSONPointers: []string{"/data/ours", "/metadata/annotations/example.com~1note"}},
		}},
	}), `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS, annotations: {example.com/note: ours}}, data: {key: one, ours: first}}`)
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	if got := c.hasConfigMap("a", "one"); got.Data["ours"] != "first" || got.Annotations["example.com/note"] != "ours" {
		t.Errorf("data = %v, annotations = %v, want the ignored fields applied at first", got.Data, got.Annotations)
	}
	patch := []byte(`{"metadata":{"annotations":{"example.com/note":"theirs"}},"data":{"key":"drift","ours":"theirs"}}`)
	if _, err := c.kube.CoreV1().ConfigMaps(c.name).Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "other"}); err != nil {
		t.Fatal(err)
	}
	if got := c.hasConfigMap("a", "one"); got.Data["ours"] != "theirs" || got.Annotations["example.com/note"] != "theirs" {
		t.Errorf("data = %v, annotations = %v, want theirs in the ignored fields", got.Data, got.Annotations)
	}
}

func testFieldManager(t *testing.T, c *cluster) {
	c.run()
	name := c.create("", configs(
		c.configOf("named", func(o *workv1.ManifestConfigOption) {
			o.UpdateStrategy = &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeServerSideApply, ServerSideApply: &workv1.ServerSideApplyConfig{FieldManager: "work-agent-blue"}}
		}),
		c.configOf("*", func(o *workv1.ManifestConfigOption) {
			o.UpdateStrategy = &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeServerSideApply}
		}),
	), configMap("named", "one"), configMap("unnamed", "one"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	for object, want := range map[string]string{"named": "work-agent-blue", "unnamed": "work-agent"} {
		got := c.hasConfigMap(object, "one")
		if !slices.ContainsFunc(got.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
			return entry.Manager == want && entry.Operation == metav1.ManagedFieldsOperationApply
		}) {
			t.Errorf("managedFields of ConfigMap %s = %v, want an Apply entry of %s", object, got.ManagedFields, want)
		}
	}
}
