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

// TestCompleteWorks goes through what the public work agent does with a work, on a
// real cluster. What TestAgent has is not repeated.
func TestCompleteWorks(t *testing.T) {
	f := newFixture(t)
	for name, test := range map[string]func(*testing.T, *cluster){
		"reasons-good":       testReasonsOfAppliedWork,
		"reasons-bad":        testReasonsOfFailedWork,
		"reasons-unread":     testReasonsOfUnreadObject,
		"reasons-deleting":   testReasonsOfDeletion,
		"finalizer-first":    testFinalizerFirst,
		"record-shape":       testRecordShape,
		"other-owners":       testOtherOwners,
		"delete-options":     testDeleteOptions,
		"orphan-exactly":     testOrphanExactly,
		"wildcards":          testWildcards,
		"completes-each":     testCompletesEach,
		"pod-finishes":       testPodFinishes,
		"deployment-status":  testDeploymentStatus,
		"feedback-types":     testFeedbackTypes,
		"feedback-allowed":   testFeedbackAllowed,
		"ignore-by-pointer":  testIgnoreByPointer,
		"apply-by-manager":   testFieldManager,
		"keeps-what-is-live": testKeepsWhatIsLive,
		"former-hub":         testFormerHub,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, f.cluster(t))
		})
	}
}

// configOf returns an entry for the ConfigMaps of a name, or pattern, in the test's namespace.
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

// has waits until a condition of the work, or of one of its manifests, is as wanted:
// "Type=Status: Reason". The index of the work itself is -1.
func (c *cluster) has(name string, index int, wanted ...string) *workv1.ManifestWork {
	c.t.Helper()
	var work *workv1.ManifestWork
	eventually(c.t, fmt.Sprintf("%d says %v", index, wanted), func(ctx context.Context) error {
		var err error
		if work, err = c.works().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		conditions := work.Status.Conditions
		if index >= 0 {
			if len(work.Status.ResourceStatus.Manifests) <= index {
				return errors.New("it says nothing yet")
			}
			conditions = work.Status.ResourceStatus.Manifests[index].Conditions
		}
		var got []string
		for _, condition := range conditions {
			got = append(got, fmt.Sprintf("%s=%s: %s", condition.Type, condition.Status, condition.Reason))
		}
		for _, want := range wanted {
			if !slices.Contains(got, want) {
				return fmt.Errorf("it says %q", got)
			}
		}
		return nil
	})
	return work
}

// feedbackOf waits until a manifest reports values: "name=value".
func (c *cluster) feedbackOf(name string, index int, wanted ...string) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("%d reports %q", index, wanted), func(ctx context.Context) error {
		work, err := c.works().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(work.Status.ResourceStatus.Manifests) <= index {
			return errors.New("it reports nothing yet")
		}
		got := []string{}
		for _, value := range work.Status.ResourceStatus.Manifests[index].StatusFeedbacks.Values {
			got = append(got, value.Name+"="+textOf(value.Value))
		}
		if !slices.Equal(got, wanted) {
			return fmt.Errorf("it reports %q", got)
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
	// A value that cannot be had does not keep the others from being reported.
	c.feedbackOf(name, 3, "key=String one")
	c.hasConfigMap("ignoring", "theirs")
}

func testReasonsOfUnreadObject(t *testing.T, c *cluster) {
	away := errors.New("the managed cluster is away")
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
