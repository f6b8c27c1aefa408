package agent_test

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

func strategy(resource string, strategy workv1.UpdateStrategy) func(*workv1.ManifestWorkSpec) {
	return func(spec *workv1.ManifestWorkSpec) {
		spec.ManifestConfigs = []workv1.ManifestConfigOption{{
			ResourceIdentifier: workv1.ResourceIdentifier{Resource: resource, Name: "*", Namespace: new("*")},
			UpdateStrategy:     &strategy,
		}}
	}
}

func testCreateOnly(t *testing.T, c *cluster) {
	c.run()
	name := c.create("", strategy("configmaps", workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeCreateOnly}), configMap("a", "one"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.replace(name, configMap("a", "two"), configMap("b", "one"))
	c.hasConfigMap("b", "one")
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.hasConfigMap("a", "one")
	c.delete(name)
	c.gone(name)
	c.noConfigMap("a")
}

func testReadOnly(t *testing.T, c *cluster) {
	c.run()
	name := c.create("", func(spec *workv1.ManifestWorkSpec) {
		strategy("configmaps", workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeReadOnly})(spec)
		spec.ManifestConfigs[0].FeedbackRules = []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{{Name: "key", Path: ".data.key"}}}}
	}, configMap("a", "ignored"))
	c.condition(name, workv1.WorkApplied, metav1.ConditionFalse)
	c.condition(name, workv1.WorkAvailable, metav1.ConditionFalse)
	c.createConfigMap("a", "theirs")
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	work := c.condition(name, workv1.WorkAvailable, metav1.ConditionTrue)
	if values := work.Status.ResourceStatus.Manifests[0].StatusFeedbacks.Values; len(values) != 1 || *values[0].Value.String != "theirs" {
		t.Errorf("feedback = %+v, want theirs", values)
	}
	// If the strategy of an applied object changes to ReadOnly, the agent releases the object.
	c.update(name, func(spec *workv1.ManifestWorkSpec) {
		spec.Workload.Manifests = append(spec.Workload.Manifests, c.manifest(configMap("b", "ours")))
		spec.ManifestConfigs[0].ResourceIdentifier.Name = "a"
	})
	c.hasConfigMap("b", "ours")
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.update(name, func(spec *workv1.ManifestWorkSpec) { spec.ManifestConfigs[0].ResourceIdentifier.Name = "*" })
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.delete(name)
	c.gone(name)
	if got := c.hasConfigMap("b", "ours"); len(got.OwnerReferences) > 0 {
		t.Errorf("ownerReferences of ConfigMap b = %v, want none", got.OwnerReferences)
	}
	if got := c.hasConfigMap("a", "theirs"); len(got.OwnerReferences) > 0 || len(got.Annotations) > 0 {
		t.Errorf("metadata of ConfigMap a = %+v, want no owners and no annotations", got.ObjectMeta)
	}
}

func testServerSide(t *testing.T, c *cluster) {
	c.run()
	name := c.create("", strategy("configmaps", workv1.UpdateStrategy{
		Type: workv1.UpdateStrategyTypeServerSideApply,
		ServerSideApply: &workv1.ServerSideApplyConfig{IgnoreFields: []workv1.IgnoreField{
			{Condition: workv1.IgnoreFieldsConditionOnSpokePresent, JSONPaths: []string{".data.present"}},
			{Condition: workv1.IgnoreFieldsConditionOnSpokeChange, JQPathExpressions: []string{".data.change"}},
		}},
	}), `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS}, data: {key: one, present: one, change: one}}`)
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)

	patch := []byte(`{"data":{"key":"drift","present":"theirs","change":"theirs"}}`)
	if _, err := c.kube.CoreV1().ConfigMaps(c.name).Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "other"}); err != nil {
		t.Fatal(err)
	}
	// Another field manager owns data.key now.
	work := c.condition(name, workv1.WorkApplied, metav1.ConditionFalse)
	if got := meta.FindStatusCondition(work.Status.ResourceStatus.Manifests[0].Conditions, workv1.WorkApplied); got.Reason != workv1.ReasonAppliedManifestFailed {
		t.Errorf("condition Applied = %+v, want reason %s", got, workv1.ReasonAppliedManifestFailed)
	}
	c.update(name, func(spec *workv1.ManifestWorkSpec) {
		spec.ManifestConfigs[0].UpdateStrategy.ServerSideApply.Force = new(true)
	})
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	got := c.hasConfigMap("a", "one")
	if got.Data["present"] != "theirs" || got.Data["change"] != "theirs" {
		t.Errorf("data = %v, want present=theirs and change=theirs", got.Data)
	}
	// A new manifest applies fields that are ignored on change, but not fields that are ignored when
	// they are present.
	c.replace(name, `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS}, data: {key: two, present: two, change: two}}`)
	got = c.hasConfigMap("a", "two")
	if got.Data["present"] != "theirs" || got.Data["change"] != "two" {
		t.Errorf("data = %v, want present=theirs and change=two", got.Data)
	}
	c.delete(name)
	c.gone(name)
	c.noConfigMap("a")
}

func testFeedback(t *testing.T, c *cluster) {
	c.run()
	name := c.create("", func(spec *workv1.ManifestWorkSpec) {
		spec.ManifestConfigs = []workv1.ManifestConfigOption{{
			ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Name: "a", Namespace: new(c.name)},
			FeedbackRules: []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{
				{Name: "key", Path: ".data.key"}, {Name: "other", Path: ".data.other"},
			}}},
			ConditionRules: []workv1.ConditionRule{{
				Type: workv1.CelConditionExpressionsType, Condition: "Fed",
				CelExpressions: []string{`"other" in object.data`}, MessageExpression: new(`result ? object.data.other : "hungry"`),
			}},
		}}
	}, configMap("a", "one"))
	work := c.condition(name, "Fed", metav1.ConditionFalse)
	if values := work.Status.ResourceStatus.Manifests[0].StatusFeedbacks.Values; len(values) != 1 || *values[0].Value.String != "one" {
		t.Errorf("feedback = %+v, want one", values)
	}
	patch := []byte(`{"data":{"other":"theirs"}}`)
	if _, err := c.kube.CoreV1().ConfigMaps(c.name).Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	work = c.condition(name, "Fed", metav1.ConditionTrue)
	if values := work.Status.ResourceStatus.Manifests[0].StatusFeedbacks.Values; len(values) != 2 {
		t.Errorf("feedback = %+v, want 2 values", values)
	}
}

func testComplete(t *testing.T, c *cluster) {
	c.run()
	name := c.create("", func(spec *workv1.ManifestWorkSpec) {
		spec.ManifestConfigs = []workv1.ManifestConfigOption{{
			ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Name: "a", Namespace: new(c.name)},
			ConditionRules: []workv1.ConditionRule{{
				Type: workv1.CelConditionExpressionsType, Condition: workv1.WorkComplete, CelExpressions: []string{`object.data.key == "done"`},
			}},
		}}
	}, configMap("a", "doing"), configMap("b", "one"))
	c.condition(name, workv1.WorkComplete, metav1.ConditionFalse)
	got := c.hasConfigMap("a", "doing")
	got.Data["key"] = "done"
	if _, err := c.kube.CoreV1().ConfigMaps(c.name).Update(t.Context(), got, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.condition(name, workv1.WorkComplete, metav1.ConditionTrue)
	for _, name := range []string{"a", "b"} {
		if err := c.kube.CoreV1().ConfigMaps(c.name).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.condition(name, workv1.WorkAvailable, metav1.ConditionFalse)
	c.replace(name, configMap("a", "again"), configMap("b", "two"))
	work := c.condition(name, workv1.WorkComplete, metav1.ConditionTrue)
	if applied := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied); applied == nil || applied.ObservedGeneration == work.Generation {
		t.Errorf("observedGeneration of condition Applied after completion = %d, want an earlier generation", work.Generation)
	}
	for _, name := range []string{"a", "b"} {
		if _, err := c.configMap(name); !apierrors.IsNotFound(err) {
			t.Errorf("Get(ConfigMap %s) after completion = %v, want NotFound", name, err)
		}
	}
	c.delete(name)
	c.gone(name)
}
