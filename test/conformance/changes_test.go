package conformance

import (
	"encoding/json"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// specChanges contains, for each kind, a JSON merge patch that changes the spec of the example to
// another valid spec. If the spec of a kind is immutable, the patch changes another field, and the
// generation stays the same.
var specChanges = map[string]string{
	"ManagedCluster":               `{"spec":{"leaseDurationSeconds":75}}`,
	"ManifestWork":                 `{"spec":{"deleteOption":{"propagationPolicy":"Orphan"}}}`,
	"ManagedServiceAccount":        `{"spec":{"rotation":{"validity":"48h"}}}`,
	"ManagedServiceAccountBinding": `{"spec":{"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"erin"}]}}`,
	"ManagedClusterSet":            `{"spec":{"clusterSelector":{"labelSelector":{"matchLabels":{"region":"south"}}}}}`,
	// The only field of the spec, clusterSet, is immutable.
	"ManagedClusterSetBinding":   `{"metadata":{"annotations":{"changed":"yes"}}}`,
	"ClusterNamespace":           `{"spec":{"namespaceUID":"0c1d2e3f-0000-4000-8000-000000000000"}}`,
	"ManagedClusterAddOn":        `{"spec":{"configs":[{"group":"","resource":"configmaps","namespace":"default","name":"changed"}]}}`,
	"ClusterManagementAddOn":     `{"spec":{"addOnMeta":{"displayName":"Changed"}}}`,
	"AddOnDeploymentConfig":      `{"spec":{"agentInstallNamespace":"changed"}}`,
	"MulticlusterRoleAssignment": `{"spec":{"subject":{"name":"changed"}}}`,
	"ClusterPermission":          `{"spec":{"clusterRole":{"rules":[{"apiGroups":[""],"resources":["nodes"],"verbs":["get"]}]}}}`,
}

// unattended changes an object so that controllers do not write to it after its creation, for the
// kinds whose example they write to.
var unattended = map[string]func(object *unstructured.Unstructured) error{
	// Controllers add a finalizer, conditions, taints and the namespace to an accepted cluster.
	// test/registration tests these.
	"ManagedCluster": func(cluster *unstructured.Unstructured) error {
		return unstructured.SetNestedField(cluster.Object, false, "spec", "hubAcceptsClient")
	},
}

// namedBySpec copies the name of an object to its spec, for the kinds that require it. generateName
// does not work for these kinds.
var namedBySpec = map[string]func(object *unstructured.Unstructured) error{
	"ManagedClusterSetBinding": func(binding *unstructured.Unstructured) error {
		return unstructured.SetNestedField(binding.Object, binding.GetName(), "spec", "clusterSet")
	},
}

// conditionType is the type of the condition that tests report. No controller reports it.
const conditionType = "Conformance"

// statusReport returns a status of the kind with one condition.
func (k kind) statusReport(conditionType string) map[string]any {
	status := map[string]any{"conditions": []any{map[string]any{
		"type":               conditionType,
		"status":             "True",
		"reason":             "Tested",
		"message":            "Reported by a test.",
		"lastTransitionTime": "2026-01-02T03:04:05Z",
	}}}
	if k.Kind == "ClusterManagementAddOn" { // has conditions per placement only
		status["namespace"], status["name"] = "default", "all"
		return map[string]any{"installProgressions": []any{status}}
	}
	return status
}

// reports reports whether the status of an object contains the condition.
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

// specChange returns the patch in specChanges for the kind.
func (k kind) specChange(t *testing.T) map[string]any {
	t.Helper()
	change, ok := specChanges[k.Kind]
	if !ok {
		t.Fatalf("specChanges has no patch for %s", k.Kind)
	}
	var patch map[string]any
	if err := json.Unmarshal([]byte(change), &patch); err != nil {
		t.Fatal(err)
	}
	return patch
}

// generation returns the generation of an object of the kind after a number of changes with
// specChange.
func (k kind) generation(t *testing.T, changes int64) int64 {
	t.Helper()
	if k.specChange(t)["spec"] == nil {
		return 1
	}
	return 1 + changes
}

// changed returns a copy of an object with the patch of specChange applied.
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
