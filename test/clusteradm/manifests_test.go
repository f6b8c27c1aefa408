package clusteradm_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// certManagerKinds are the kinds of cert-manager that the overlay cert-manager contains.
const certManagerKinds = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]ss.cert-manager.io}
spec:
  group: cert-manager.io
  scope: Namespaced
  names: {kind: %[2]s, plural: %[1]ss, singular: %[1]s}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// TestManifestsOfCommands applies each overlay twice by server-side apply. The second time changes nothing, nor does clusteradm init, and the
// Pods comply with the Pod Security Standard "restricted", which the namespaces enforce.
func TestManifestsOfCommands(t *testing.T) {
	t.Parallel()
	hub := clusters.cluster(t, "manifests", false)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := hub.WriteAdminKubeconfig(kubeconfig); err != nil {
		t.Fatal(err)
	}
	for plural, kind := range map[string]string{"issuer": "Issuer", "certificate": "Certificate"} {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(fmt.Appendf(nil, certManagerKinds, plural, kind), &object.Object); err != nil {
			t.Fatal(err)
		}
		if err := hub.Apply(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	overlays, err := filepath.Glob(filepath.Join(localhub.Root(), "artifacts", "deploy", "*", "kustomization.yaml"))
	if err != nil || len(overlays) < 5 {
		t.Fatalf("Glob(overlays) = %q, %v, want at least five", overlays, err)
	}
	// The overlays change fields of the same objects, so that they follow each other.
	for _, file := range append(overlays, filepath.Join(localhub.Root(), "artifacts", "agent", "kustomization.yaml")) {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			first, second := applyOverlay(t, kubeconfig, dir), applyOverlay(t, kubeconfig, dir)
			if len(first) == 0 || len(first) != len(second) {
				t.Fatalf("objects applied = %d, and %d the second time, want equal numbers of some", len(first), len(second))
			}
			for i := range first {
				for _, object := range []*unstructured.Unstructured{first[i], second[i]} {
					// The hub reports the availability of APIServices and the progress of CustomResourceDefinitions.
					delete(object.Object, "status")
					object.SetResourceVersion("")
					object.SetManagedFields(nil)
				}
				if !equality.Semantic.DeepEqual(first[i], second[i]) {
					t.Errorf("%s %s after the second apply = %v, want %v", first[i].GetKind(), first[i].GetName(), second[i], first[i])
				}
				if first[i].GetKind() == "Deployment" {
					mayRun(t, kubeOf(t, hub), first[i])
				}
			}
			if filepath.Base(filepath.Dir(dir)) == "deploy" {
				// Another means has installed this hub.
				before := deploymentOf(t, kubeOf(t, hub), hubNamespace, serverName)
				run(t, hub, "init", "--csr-probe-timeout=0").done(t).unchanged(t, "init on a hub of "+filepath.Base(dir))
				sameSpec(t, "init without flags", deploymentOf(t, kubeOf(t, hub), hubNamespace, serverName), before)
			}
		})
	}
}

// applyOverlay applies a kustomization with kubectl, and returns the objects as the hub stores them.
func applyOverlay(t *testing.T, kubeconfig, dir string) []*unstructured.Unstructured {
	t.Helper()
	path, err := localhub.Binary(localhub.BinDir(), "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), path, "--kubeconfig="+kubeconfig, "apply", "--server-side", "-o", "json", "-k", dir)
	var problems bytes.Buffer
	command.Stderr = &problems
	out, err := command.Output()
	if err != nil {
		t.Fatalf("kubectl apply -k %s: %v: %s", filepath.Base(dir), err, problems.String())
	}
	var list struct{ Items []map[string]any }
	if err := json.Unmarshal(out, &list); err != nil {
		t.Fatal(err)
	}
	var objects []*unstructured.Unstructured
	for _, item := range list.Items {
		objects = append(objects, &unstructured.Unstructured{Object: item})
	}
	return objects
}

// mayRun checks that the hub admits a Pod of a Deployment in a namespace that enforces restrictions.
func mayRun(t *testing.T, kube kubernetes.Interface, object *unstructured.Unstructured) {
	t.Helper()
	namespace, err := kube.CoreV1().Namespaces().Get(t.Context(), object.GetNamespace(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if level := namespace.Labels["pod-security.kubernetes.io/enforce"]; level != "restricted" {
		t.Errorf("namespace %s enforces %q, want restricted", namespace.Name, level)
	}
	deployment := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, deployment); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: deployment.Spec.Template.ObjectMeta, Spec: deployment.Spec.Template.Spec}
	pod.Name = deployment.Name
	if _, err := kube.CoreV1().Pods(deployment.Namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("Create(Pod of Deployment %s) = %v, want admitted", deployment.Name, err)
	}
	pod.Spec.Containers[0].SecurityContext = nil
	if _, err := kube.CoreV1().Pods(deployment.Namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "violates PodSecurity") {
		t.Errorf("Create(Pod of Deployment %s without restrictions) = %v, want 403 for PodSecurity", deployment.Name, err)
	}
}
