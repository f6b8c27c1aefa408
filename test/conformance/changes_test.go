package conformance

import (
	"encoding/json"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// specChanges are JSON merge patches of the spec of each kind that make the
// example another valid object. Every resource has one; where nothing of the spec
// can change, it changes something else, and the generation stays.
var specChanges = map[string]string{
	"ManagedCluster":               `{"spec":{"leaseDurationSeconds":75}}`,
	"ManifestWork":                 `{"spec":{"deleteOption":{"propagationPolicy":"Orphan"}}}`,
	"ManagedServiceAccount":        `{"spec":{"rotation":{"validity":"48h"}}}`,
	"ManagedServiceAccountBinding": `{"spec":{"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"erin"}]}}`,
	"ManagedClusterSet":            `{"spec":{"clusterSelector":{"labelSelector":{"matchLabels":{"region":"south"}}}}}`,
	// The set of a binding is immutable, and there is nothing else in its spec.
	"ManagedClusterSetBinding": `{"metadata":{"annotations":{"changed":"yes"}}}`,
	"ClusterNamespace":         `{"spec":{"namespaceUID":"0c1d2e3f-0000-4000-8000-000000000000"}}`,
	"ManagedClusterAddOn":      `{"spec":{"configs":[{"group":"","resource":"configmaps","namespace":"default","name":"changed"}]}}`,
	"ClusterManagementAddOn":   `{"spec":{"addOnMeta":{"displayName":"Changed"}}}`,
	"AddOnDeploymentConfig":    `{"spec":{"agentInstallNamespace":"changed"}}`,
	"ClusterPermission":        `{"spec":{"clusterRole":{"rules":[{"apiGroups":[""],"resources":["nodes"],"verbs":["get"]}]}}}`,
}

// unattended makes of an object one that the server does not go on writing to by
// itself, for the kinds of which the example is another.
var unattended = map[string]func(object *unstructured.Unstructured) error{
	// An accepted cluster gets a finalizer, conditions, taints and its namespace back;
	// test/registration is about those.
	"ManagedCluster": func(cluster *unstructured.Unstructured) error {
		return unstructured.SetNestedField(cluster.Object, false, "spec", "hubAcceptsClient")
	},
}

// namedBySpec makes the spec of an object say its name, for the kinds of which it
// must. Nobody can generate the names of these.
var namedBySpec = map[string]func(object *unstructured.Unstructured) error{
	"ManagedClusterSetBinding": func(binding *unstructured.Unstructured) error {
		return unstructured.SetNestedField(binding.Object, binding.GetName(), "spec", "clusterSet")
	},
}

// conditionType is that of the condition that tests report. Nothing else does.
const conditionType = "Conformance"

// statusReport is a status of the kind that has one condition.
func (k kind) statusReport(conditionType string) map[string]any {
	status := map[string]any{"conditions": []any{map[string]any{
		"type":               conditionType,
		"status":             "True",
		"reason":             "Tested",
		"message":            "Reported by a test.",
		"lastTransitionTime": "2026-01-02T03:04:05Z",
	}}}
	if k.Kind == "ClusterManagementAddOn" { // has conditions for each placement only
		status["namespace"], status["name"] = "default", "all"
		return map[string]any{"installProgressions": []any{status}}
	}
	return status
}

// reports tells whether a status has the condition.
func reports(object *unstructured.Unstructured, conditionType string) bool {
	status, _, _ := unstructured.NestedMap(object.Object, "status")
	if progressions, _, _ := unstructured.NestedSlice(status, "installProgressions"); len(progressions) > 0 {
		status, _ = progressions[0].(map[string]any)
	}
	conditions, _, _ := unstructured.NestedSlice(status, "conditions")
	for _, condition := range conditions {
		if condition, ok := condition.(map[string]any); ok && condition["type"] == conditionType {
			return true
		}
	}
	return false
}

// specChange is the change of the kind, as a patch.
func (k kind) specChange(t *testing.T) map[string]any {
	t.Helper()
	change, ok := specChanges[k.Kind]
	if !ok {
		t.Fatalf("specChanges has none for %s", k.Kind)
	}
	var patch map[string]any
	if err := json.Unmarshal([]byte(change), &patch); err != nil {
		t.Fatal(err)
	}
	return patch
}

// generation is that of an object of the kind after its spec was changed a number of times.
func (k kind) generation(t *testing.T, changes int64) int64 {
	t.Helper()
	if k.specChange(t)["spec"] == nil {
		return 1
	}
	return 1 + changes
}

// changed is a copy of an object with the change of its kind.
func (k kind) changed(t *testing.T, object *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	before, err := object.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	patch, err := json.Marshal(k.specChange(t))
	if err != nil {
		t.Fatal(err)
	}
	after, err := jsonpatch.MergePatch(before, patch)
	if err != nil {
		t.Fatal(err)
	}
	changed := &unstructured.Unstructured{}
	if err := changed.UnmarshalJSON(after); err != nil {
		t.Fatal(err)
	}
	return changed
}
