package validation

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/hub-apiserver/pkg/apis/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/bounded"
	"open-cluster-management.io/hub-apiserver/test/fieldtest"
)

const (
	configMap = `{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: default}}`
	oneWork   = "workload: {manifests: [" + configMap + "]}\n"
)

// parsed decodes a ManifestWork named w with the spec, like a request.
func parsed(t *testing.T, spec string) *work.ManifestWork {
	t.Helper()
	return decode(t, "metadata: {name: w, namespace: cluster1}\nspec:\n  "+strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n  "))
}

func decode(t *testing.T, text string) *work.ManifestWork {
	t.Helper()
	var versioned workv1.ManifestWork
	if err := yaml.UnmarshalStrict([]byte(text), &versioned); err != nil {
		t.Fatal(err)
	}
	return (*work.ManifestWork)(&versioned)
}

func TestSpec(t *testing.T) {
	tests := map[string]struct {
		spec string
		want []string
	}{
		"smallest":     {spec: oneWork},
		"no manifests": {spec: `workload: {}`, want: []string{"spec.workload.manifests: Required value"}},
		"manifests that are not objects": {
			spec: `workload: {manifests: [` + configMap + `, null, "text", [], 1, {}, {apiVersion: v1, kind: 1}, {apiVersion: v1, kind: ConfigMap, metadata: name}]}`,
			want: []string{
				"spec.workload.manifests[1]: Required value",
				"spec.workload.manifests[2]: Invalid value",
				"spec.workload.manifests[3]: Invalid value",
				"spec.workload.manifests[4]: Invalid value",
				"spec.workload.manifests[5].apiVersion: Required value",
				"spec.workload.manifests[5].kind: Required value",
				"spec.workload.manifests[5].metadata.name: Required value",
				"spec.workload.manifests[6].kind: Invalid value",
				"spec.workload.manifests[7].metadata: Invalid value",
			},
		},
		"names of manifests": {
			spec: `
workload:
  manifests:
  - {apiVersion: v1, kind: ConfigMap, metadata: {namespace: default}}
  - {apiVersion: v1, kind: ConfigMap, metadata: {namespace: default, generateName: c-}}
  - {apiVersion: v1, kind: ConfigMap, metadata: {namespace: Default, name: a/b}}
  - {apiVersion: a/b/c, kind: ConfigMap, metadata: {name: c}}
  - {apiVersion: v1, kind: ConfigMap, metadata: {Name: c}}`,
			want: []string{
				"spec.workload.manifests[0].metadata.name: Required value",
				"spec.workload.manifests[1].metadata.generateName: Forbidden",
				"spec.workload.manifests[2].metadata.name: Invalid value",
				"spec.workload.manifests[2].metadata.namespace: Invalid value",
				"spec.workload.manifests[3].apiVersion: Invalid value",
				"spec.workload.manifests[4].metadata.name: Required value",
			},
		},
		"duplicate manifests": {
			spec: `
workload:
  manifests:
  - ` + configMap + `
  - {apiVersion: v1, kind: Secret, metadata: {name: c, namespace: default}}
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: other}}
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: default}, data: {a: b}}`,
			want: []string{"spec.workload.manifests[3]: Duplicate value"},
		},
		"deleteOption": {
			spec: oneWork + `deleteOption: {propagationPolicy: SelectivelyOrphan, ttlSecondsAfterFinished: 0, selectivelyOrphans: {orphaningRules: [{resource: configmaps, name: c}]}}`,
		},
		"deleteOption by default": {spec: oneWork + `deleteOption: {}`},
		"deleteOption malformed": {
			spec: oneWork + `deleteOption: {propagationPolicy: Never, ttlSecondsAfterFinished: -1, selectivelyOrphans: {orphaningRules: [{}]}}`,
			want: []string{
				"spec.deleteOption.propagationPolicy: Unsupported value",
				"spec.deleteOption.ttlSecondsAfterFinished: Invalid value",
				"spec.deleteOption.selectivelyOrphans: Forbidden",
				"spec.deleteOption.selectivelyOrphans.orphaningRules[0].resource: Required value",
				"spec.deleteOption.selectivelyOrphans.orphaningRules[0].name: Required value",
			},
		},
		"manifestConfigs": {
			spec: oneWork + `
manifestConfigs:
- resourceIdentifier: {resource: configmaps, name: "*", namespace: "team-*"}
  feedbackScrapeType: Watch
  feedbackRules:
  - {type: WellKnownStatus}
  - type: JSONPaths
    jsonPaths:
    - {name: replicas, path: .status.replicas}
    - {name: first, path: '.spec.containers[?(@.name=="web")].image', version: v1}
  conditionRules:
  - {type: WellKnownConditions, condition: Complete}
  - {type: CEL, condition: Ready, celExpressions: ["object.status.ready"]}
  updateStrategy:
    type: ServerSideApply
    serverSideApply:
      fieldManager: work-agent-blue
      ignoreFields:
      - {condition: OnSpokePresent, jsonPaths: [.spec.replicas], jsonPointers: [/spec/replicas]}
      - {condition: OnSpokeChange, jqPathExpressions: ['.spec.containers[] | select(.name == "proxy")']}`,
		},
		"manifestConfigs malformed": {
			spec: oneWork + `
manifestConfigs:
- resourceIdentifier: {}
  feedbackScrapeType: Sometimes
  feedbackRules:
  - {type: Guess}
  - {type: JSONPaths}
  - {type: JSONPaths, jsonPaths: [{name: a, path: .a}, {name: a, path: '.b['}, {name: "", path: ""}]}
  conditionRules:
  - {type: CEL, condition: ""}
  - {type: Guess, condition: Ready}
  - {type: WellKnownConditions, condition: Ready}
  updateStrategy:
    type: Update
    serverSideApply:
      fieldManager: someone
      ignoreFields:
      - {condition: OnSpokePresent, jsonPaths: ['['], jsonPointers: [spec]}
      - {condition: "", jqPathExpressions: ['|']}
      - {condition: Never, jqPathExpressions: ['.spec | nosuchfunction']}
- resourceIdentifier: {resource: configmaps, name: c}
  updateStrategy: {type: Overwrite}`,
			want: []string{
				"spec.manifestConfigs[0].resourceIdentifier.resource: Required value",
				"spec.manifestConfigs[0].resourceIdentifier.name: Required value",
				"spec.manifestConfigs[0].feedbackScrapeType: Unsupported value",
				"spec.manifestConfigs[0].feedbackRules[0].type: Unsupported value",
				"spec.manifestConfigs[0].feedbackRules[1].jsonPaths: Required value",
				"spec.manifestConfigs[0].feedbackRules[2].jsonPaths[1].name: Duplicate value",
				"spec.manifestConfigs[0].feedbackRules[2].jsonPaths[1].path: Invalid value",
				"spec.manifestConfigs[0].feedbackRules[2].jsonPaths[2].name: Required value",
				"spec.manifestConfigs[0].feedbackRules[2].jsonPaths[2].path: Required value",
				"spec.manifestConfigs[0].conditionRules[0].condition: Required value",
				"spec.manifestConfigs[0].conditionRules[0].celExpressions: Required value",
				"spec.manifestConfigs[0].conditionRules[1].type: Unsupported value",
				"spec.manifestConfigs[0].conditionRules[2].condition: Duplicate value",
				"spec.manifestConfigs[0].updateStrategy.serverSideApply: Forbidden",
				"spec.manifestConfigs[0].updateStrategy.serverSideApply.fieldManager: Invalid value",
				"spec.manifestConfigs[0].updateStrategy.serverSideApply.ignoreFields[0].jsonPaths[0]: Invalid value",
				"spec.manifestConfigs[0].updateStrategy.serverSideApply.ignoreFields[0].jsonPointers[0]: Invalid value",
				"spec.manifestConfigs[0].updateStrategy.serverSideApply.ignoreFields[1].condition: Duplicate value",
				"spec.manifestConfigs[0].updateStrategy.serverSideApply.ignoreFields[1].jqPathExpressions[0]: Invalid value",
				"spec.manifestConfigs[0].updateStrategy.serverSideApply.ignoreFields[2].condition: Unsupported value",
				"spec.manifestConfigs[0].updateStrategy.serverSideApply.ignoreFields[2].jqPathExpressions[0]: Invalid value",
				"spec.manifestConfigs[1].updateStrategy.type: Unsupported value",
			},
		},
		"conditionRules malformed": {
			spec: oneWork + `
manifestConfigs:
- resourceIdentifier: {resource: configmaps, name: c}
  conditionRules:
  - {type: CEL, condition: "is ready", celExpressions: ["true"]}
  - {type: CEL, condition: Syntax, celExpressions: ["true", "1 +"]}
  - {type: CEL, condition: Number, celExpressions: ["1"]}
  - {type: CEL, condition: Unknown, celExpressions: ["objects.a"]}
  - {type: CEL, condition: Message, celExpressions: ["object.a == 1"], messageExpression: "result"}
  - {type: CEL, condition: Good, celExpressions: ["object.?a.orValue('x') == 'x'", "hasConditions(object.status)", "quantity(object.a).isGreaterThan(quantity('1'))"], messageExpression: "result ? 'is ' + object.a : 'is not'"}`,
			want: []string{
				"spec.manifestConfigs[0].conditionRules[0].condition: Invalid value",
				"spec.manifestConfigs[0].conditionRules[1].celExpressions[1]: Invalid value",
				"spec.manifestConfigs[0].conditionRules[2].celExpressions[0]: Invalid value",
				"spec.manifestConfigs[0].conditionRules[3].celExpressions[0]: Invalid value",
				"spec.manifestConfigs[0].conditionRules[4].messageExpression: Invalid value",
			},
		},
		"metadata that no API server decodes": {
			spec: `
workload:
  manifests:
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: b, labels: {one: 1, two: two}, annotations: [x]}}
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: b, labels: {a: b}, annotations: null}}`,
			want: []string{
				"spec.workload.manifests[0].metadata.labels[one]: Invalid value",
				"spec.workload.manifests[0].metadata.annotations: Invalid value",
			},
		},
		"executor": {
			spec: oneWork + `executor: {subject: {type: ServiceAccount, serviceAccount: {namespace: tools, name: my.robot}}}`,
		},
		"executor without account": {
			spec: oneWork + `executor: {subject: {type: User}}`,
			want: []string{"spec.executor.subject.type: Unsupported value", "spec.executor.subject.serviceAccount: Required value"},
		},
		"executor malformed": {
			spec: oneWork + `executor: {subject: {type: ServiceAccount, serviceAccount: {namespace: "", name: Robot}}}`,
			want: []string{"spec.executor.subject.serviceAccount.namespace: Required value", "spec.executor.subject.serviceAccount.name: Invalid value"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			fieldtest.Check(t, ManifestWork(0).New(parsed(t, test.spec)), test.want...)
		})
	}
}

func TestName(t *testing.T) {
	for name, want := range map[string][]string{
		strings.Repeat("a", 188): nil,
		strings.Repeat("a", 189): {"metadata.name: Invalid value"},
		"My_Work":                {"metadata.name: Invalid value"},
	} {
		mw := parsed(t, oneWork)
		mw.Name = name
		fieldtest.Check(t, ManifestWork(0).New(mw), want...)
	}
}

func TestSizeLimit(t *testing.T) {
	mw := parsed(t, oneWork)
	size := int64(len(mw.Spec.Workload.Manifests[0].Raw))
	fieldtest.Check(t, ManifestWork(size).New(mw))
	errs := ManifestWork(size - 1).New(mw)
	fieldtest.Check(t, errs, "spec.workload.manifests: Too long")
	want := fmt.Sprintf("may not be more than %d bytes in total, found %d bytes", size-1, size)
	if errs[0].Detail != want {
		t.Errorf("ManifestWork(%d).New() has detail %q, want %q", size-1, errs[0].Detail, want)
	}
}

func TestExpressionsAreBounded(t *testing.T) {
	mw := parsed(t, oneWork)
	mw.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{
		ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Name: "c"},
		FeedbackRules: []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{
			{Name: "deep", Path: strings.Repeat(".a", bounded.MaxLength)},
		}}},
	}}
	fieldtest.Check(t, ManifestWork(0).New(mw), "spec.manifestConfigs[0].feedbackRules[0].jsonPaths[0].path: Too long")
}

func TestManifestBuiltInMemory(t *testing.T) {
	mw := parsed(t, oneWork)
	mw.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Object: &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "c"},
	}}}}
	fieldtest.Check(t, ManifestWork(0).New(mw))
	fieldtest.Check(t, ManifestWork(10).New(mw), "spec.workload.manifests: Too long")
}

func TestUpdateIgnoresStoredErrors(t *testing.T) {
	const unnamed = `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: a}}`
	const limit = 250
	manifests := func(list ...string) string { return "workload: {manifests: [" + strings.Join(list, ", ") + "]}\n" }
	large := `{apiVersion: v1, kind: ConfigMap, metadata: {name: large}, data: {a: ` + strings.Repeat("x", limit) + `}}`
	const ignored = `manifestConfigs: [{resourceIdentifier: {resource: configmaps, name: c}, updateStrategy: {type: Update, serverSideApply: {force: true}}}]`
	tests := map[string]struct {
		old, spec string
		want      []string
	}{
		"oversize, and a deleteOption": {old: manifests(large), spec: manifests(large) + `deleteOption: {propagationPolicy: Orphan}`},
		"oversize, and another manifest": {
			old: manifests(large), spec: manifests(large, configMap),
			want: []string{"spec.workload.manifests: Too long"},
		},
		"unnamed, and another manifest": {old: manifests(unnamed), spec: manifests(configMap, unnamed)},
		"unnamed, changed": {
			old: manifests(unnamed), spec: manifests(strings.ReplaceAll(unnamed, "namespace: a", "namespace: b")),
			want: []string{"spec.workload.manifests[0].metadata.name: Required value"},
		},
		"all manifests removed": {
			old: manifests(configMap), spec: "workload: {}",
			want: []string{"spec.workload.manifests: Required value"},
		},
		"ignored setting, and another manifest": {
			old:  manifests(configMap) + ignored,
			spec: manifests(configMap, `{apiVersion: v1, kind: Secret, metadata: {name: s}}`) + ignored,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			fieldtest.Check(t, ManifestWork(limit).Update(parsed(t, test.spec), parsed(t, test.old)), test.want...)
		})
	}
}

func TestMetadataOfInvalidObjectMayChange(t *testing.T) {
	old := parsed(t, "workload: {}")
	mw := old.DeepCopy()
	mw.Labels = map[string]string{"team": "qa"}
	mw.Finalizers = nil
	fieldtest.Check(t, ManifestWork(1).Update(mw, old))
}

func TestStatus(t *testing.T) {
	old := parsed(t, oneWork)
	mw := old.DeepCopy()
	good := metav1.Condition{Type: "Applied", Status: metav1.ConditionTrue, Reason: "Done", LastTransitionTime: metav1.Now()}
	text, long := "text", strings.Repeat("x", 1025)
	mw.Status.Conditions = []metav1.Condition{good, good}
	mw.Status.ResourceStatus.Manifests = []workv1.ManifestCondition{{
		ResourceMeta: workv1.ManifestResourceMeta{Ordinal: -1},
		Conditions:   []metav1.Condition{{Type: "Applied", Status: metav1.ConditionTrue, Reason: "Done"}},
		StatusFeedbacks: workv1.StatusFeedbackResult{Values: []workv1.FeedbackValue{
			{Name: "a", Value: workv1.FieldValue{Type: workv1.String, String: &text}},
			{Name: "a", Value: workv1.FieldValue{Type: workv1.Integer, String: &text}},
			{Name: "b", Value: workv1.FieldValue{Type: workv1.JsonRaw, JsonRaw: &long}},
			{Name: "c", Value: workv1.FieldValue{Type: "Float"}},
		}},
	}}
	const manifest = "status.resourceStatus.manifests[0]."
	fieldtest.Check(t, ManifestWork(0).UpdateStatus(mw, old),
		"status.conditions[1]: Duplicate value",
		manifest+"resourceMeta.ordinal: Invalid value",
		manifest+"conditions[0].lastTransitionTime: Required value",
		manifest+"statusFeedback.values[1].name: Duplicate value",
		manifest+"statusFeedback.values[1].fieldValue: Required value",
		manifest+"statusFeedback.values[2].fieldValue.jsonRaw: Too long",
		manifest+"statusFeedback.values[3].fieldValue.type: Unsupported value")
	fieldtest.Check(t, ManifestWork(0).UpdateStatus(mw, mw.DeepCopy()))
}
