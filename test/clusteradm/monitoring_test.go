package clusteradm_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// monitoringKind is a kind of prometheus-operator that the components contain.
const monitoringKind = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]ss.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: %[2]s, plural: %[1]ss, singular: %[1]s}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// TestMonitoringManifests applies the components for monitoring twice by server-side apply, with the base of each. The
// second time changes nothing.
func TestMonitoringManifests(t *testing.T) {
	t.Parallel()
	hub := clusters.cluster(t, "monitoring", false)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := hub.WriteAdminKubeconfig(kubeconfig); err != nil {
		t.Fatal(err)
	}
	for plural, kind := range map[string]string{"servicemonitor": "ServiceMonitor", "podmonitor": "PodMonitor", "prometheusrule": "PrometheusRule"} {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(fmt.Appendf(nil, monitoringKind, plural, kind), &object.Object); err != nil {
			t.Fatal(err)
		}
		if err := hub.Apply(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	// The hub registers the group of the agent's CustomResourceDefinition itself, unless an APIService is there before.
	for _, parts := range [][2]string{{"deploy/base", "deploy/components/monitoring"}, {"agent", "agent/monitoring"}} {
		base, component := parts[0], parts[1]
		// Kustomize accepts no absolute paths.
		dir := t.TempDir()
		artifacts := framework.Must(filepath.Rel(dir, filepath.Join(localhub.Root(), "artifacts")))(t)
		content := fmt.Appendf(nil, "resources: [%s]\ncomponents: [%s]\n", filepath.Join(artifacts, base), filepath.Join(artifacts, component))
		if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), content, 0o600); err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for _, object := range applyOverlay(t, kubeconfig, dir) {
			if object.GetAPIVersion() == "monitoring.coreos.com/v1" || object.GetName() == "hub-apiserver-metrics" {
				found[object.GetKind()+" "+object.GetName()] = object.GetResourceVersion()
			}
		}
		if len(found) < 2 {
			t.Errorf("%s: objects for monitoring = %v, want at least 2", component, found)
		}
		for _, object := range applyOverlay(t, kubeconfig, dir) {
			name := object.GetKind() + " " + object.GetName()
			if version, ok := found[name]; ok && version != object.GetResourceVersion() {
				t.Errorf("%s: resource version of %s after the second apply = %s, want %s", component, name, object.GetResourceVersion(), version)
			}
		}
	}
}
