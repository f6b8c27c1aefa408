package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

var completeTests = map[string]func(*testing.T, *cluster){
	"reasons-applied":        testReasonsOfAppliedWork,
	"reasons-failed":         testReasonsOfFailedWork,
	"reasons-unreadable":     testReasonsOfUnreadableObject,
	"reasons-deleting":       testReasonsOfDeletion,
	"finalizer-first":        testFinalizerFirst,
	"applied-manifest-work":  testAppliedManifestWork,
	"other-owners":           testOtherOwners,
	"delete-options":         testDeleteOptions,
	"orphan-exactly":         testOrphanExactly,
	"wildcards":              testWildcards,
	"complete-one-by-one":    testCompleteOneByOne,
	"pod-finishes":           testPodFinishes,
	"deployment-status":      testDeploymentStatus,
	"feedback-types":         testFeedbackTypes,
	"feedback-allowed":       testFeedbackAllowed,
	"ignore-by-pointer":      testIgnoreByPointer,
	"field-manager":          testFieldManager,
	"keeps-foreign-metadata": testKeepsForeignMetadata,
	"previous-hub":           testPreviousHub,
}

// configOf returns a manifestConfigs entry for ConfigMaps with a name, or pattern, in the namespace of
// the test.
func (c *cluster) configOf(name string, change func(*workv1.ManifestConfigOption)) workv1.ManifestConfigOption {
	option := workv1.ManifestConfigOption{ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Name: name, Namespace: new(c.name)}}
	change(&option)
	return option
}

func configs(options ...workv1.ManifestConfigOption) func(*workv1.ManifestWorkSpec) {
	return func(spec *workv1.ManifestWorkSpec) { spec.ManifestConfigs = options }
}

func values(pairs ...string) []workv1.FeedbackRule {
	rule := workv1.FeedbackRule{Type: workv1.JSONPathsType}
	for i := 0; i < len(pairs); i += 2 {
		rule.JsonPaths = append(rule.JsonPaths, workv1.JsonPath{Name: pairs[i], Path: pairs[i+1]})
	}
	return []workv1.FeedbackRule{rule}
}

func celRule(condition, expression string) workv1.ConditionRule {
	return workv1.ConditionRule{Type: workv1.CelConditionExpressionsType, Condition: condition, CelExpressions: []string{expression}}
}

// has waits until a ManifestWork, or one of its manifests, has all wanted conditions, and returns the
// ManifestWork. A condition has the form "Type=Status: Reason". Index -1 is the ManifestWork itself.
func (c *cluster) has(name string, index int, wanted ...string) *workv1.ManifestWork {
	c.t.Helper()
	var work *workv1.ManifestWork
	eventually(c.t, fmt.Sprintf("manifest %d of ManifestWork %s has conditions %q", index, name, wanted), func(ctx context.Context) error {
		var err error
		if work, err = c.works().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		conditions := work.Status.Conditions
		if index >= 0 {
			if len(work.Status.ResourceStatus.Manifests) <= index {
				return errors.New("the status does not contain the manifest")
			}
			conditions = work.Status.ResourceStatus.Manifests[index].Conditions
		}
		var got []string
		for _, condition := range conditions {
			got = append(got, fmt.Sprintf("%s=%s: %s", condition.Type, condition.Status, condition.Reason))
		}
		for _, want := range wanted {
			if !slices.Contains(got, want) {
				return fmt.Errorf("conditions = %q, want %q", got, want)
			}
		}
		return nil
	})
	return work
}

// feedbackOf waits until the feedback of a manifest is as wanted. A value has the form
// "name=Type value".
func (c *cluster) feedbackOf(name string, index int, wanted ...string) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("manifest %d of ManifestWork %s has feedback %q", index, name, wanted), func(ctx context.Context) error {
		work, err := c.works().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(work.Status.ResourceStatus.Manifests) <= index {
			return errors.New("the status does not contain the manifest")
		}
		got := []string{}
		for _, value := range work.Status.ResourceStatus.Manifests[index].StatusFeedbacks.Values {
			got = append(got, value.Name+"="+textOf(value.Value))
		}
		if !slices.Equal(got, wanted) {
			return fmt.Errorf("feedback = %q, want %q", got, wanted)
		}
		return nil
	})
}

func textOf(value workv1.FieldValue) string {
	switch value.Type {
	case workv1.Integer:
		return fmt.Sprintf("Integer %d", *value.Integer)
	case workv1.Boolean:
		return fmt.Sprintf("Boolean %t", *value.Boolean)
	case workv1.JsonRaw:
		return "JsonRaw " + *value.JsonRaw
	default:
		return string(value.Type) + " " + *value.String
	}
}

func testReasonsOfAppliedWork(t *testing.T, c *cluster) {
	c.run()
	name := c.create("", configs(c.configOf("a", func(option *workv1.ManifestConfigOption) {
		option.FeedbackRules = values("key", ".data.key")
		option.ConditionRules = []workv1.ConditionRule{celRule("Progressing", `object.data.key == "one"`), celRule("Degraded", `object.data.key == "two"`)}
	})), configMap("a", "one"), configMap("b", "one"))
	c.has(name, -1, "Applied=True: AppliedManifestWorkComplete", "Available=True: ResourcesAvailable",
		"Progressing=True: ConditionRulesAggregated", "Degraded=False: ConditionRulesAggregated")
	c.has(name, 0, "Applied=True: AppliedManifestComplete", "Available=True: ResourceAvailable", "StatusFeedbackSynced=True: StatusFeedbackSynced",
		"Progressing=True: ConditionRuleEvaluated", "Degraded=False: ConditionRuleEvaluated")
	c.has(name, 1, "StatusFeedbackSynced=True: NoStatusFeedbackSynced")
}

func testReasonsOfFailedWork(t *testing.T, c *cluster) {
	c.run()
	ignoring := func(field workv1.IgnoreField) func(*workv1.ManifestConfigOption) {
		return func(option *workv1.ManifestConfigOption) {
			option.UpdateStrategy = &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeServerSideApply,
				ServerSideApply: &workv1.ServerSideApplyConfig{IgnoreFields: []workv1.IgnoreField{field}}}
		}
	}
	c.createConfigMap("ignoring", "theirs")
	name := c.create("", configs(
		c.configOf("ignoring", ignoring(workv1.IgnoreField{Condition: workv1.IgnoreFieldsConditionOnSpokePresent, JQPathExpressions: []string{`.data | error("no")`}})),
		c.configOf("ruled", func(option *workv1.ManifestConfigOption) {
			option.FeedbackRules = append([]workv1.FeedbackRule{{Type: workv1.WellKnownStatusType}}, values("key", ".data.key")...)
			option.ConditionRules = []workv1.ConditionRule{
				celRule("Broken", `object.data.none == "x"`), celRule("NoBool", `object.data.key`),
				celRule("Expensive", `lists.range(100000).all(i, lists.range(1000).all(k, k >= 0))`),
				{Type: workv1.WellKnownConditionsType, Condition: workv1.WorkComplete},
			}
		}),
	),
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS-none}}`,
		`{apiVersion: nobody.example.com/v1, kind: Nothing, metadata: {name: a}}`,
		configMap("ignoring", "ours"), configMap("ruled", "one"))
	c.has(name, -1, "Applied=False: AppliedManifestWorkFailed", "Available=False: ResourcesNotAvailable", "Broken=False: ConditionRulesAggregated")
	c.has(name, 0, "Applied=False: AppliedManifestFailed", "Available=False: ResourceNotAvailable")
	c.has(name, 1, "Applied=False: AppliedManifestFailed", "Available=Unknown: IncompleteResourceMeta")
	c.has(name, 2, "Applied=False: AppliedManifestSSAIgnoreFieldError", "Available=True: ResourceAvailable")
	c.has(name, 3, "Applied=True: AppliedManifestComplete", "StatusFeedbackSynced=False: StatusFeedbackSyncFailed",
		"Broken=False: ConditionRuleExpressionError", "NoBool=False: ConditionRuleExpressionError", "Expensive=False: ConditionRuleExpressionError",
		"Complete=Unknown: ConditionRuleInvalid")
	// A value that cannot be read does not prevent the report of the others.
	c.feedbackOf(name, 3, "key=String one")
	c.hasConfigMap("ignoring", "theirs")
}

func testReasonsOfUnreadableObject(t *testing.T, c *cluster) {
	away := errors.New("the managed cluster does not respond")
	c.onRequest(func(request *http.Request) error {
		if strings.HasSuffix(request.URL.Path, "/configmaps/a") || request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, "/configmaps") {
			return away
		}
		return nil
	})
	c.run()
	name := c.create("", nil, configMap("a", "one"))
	c.has(name, -1, "Applied=False: AppliedManifestWorkFailed", "Available=Unknown: ResourcesStatusUnknown")
	c.has(name, 0, "Applied=False: AppliedManifestFailed", "Available=Unknown: FetchingResourceFailed")
	c.onRequest(nil)
	c.has(name, -1, "Applied=True: AppliedManifestWorkComplete", "Available=True: ResourcesAvailable")
}
