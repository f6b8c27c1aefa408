package managedclusteraddon_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/registry/addon/clustermanagementaddon"
	"open-cluster-management.io/hub-apiserver/pkg/registry/addon/managedclusteraddon"
	"open-cluster-management.io/hub-apiserver/test/registrytest"
)

func parsed(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

func asJSON(t *testing.T, text string) []byte {
	t.Helper()
	content, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// wantRefusal checks that an error has exactly these causes, by field.
func wantRefusal(t *testing.T, what string, err error, want ...string) {
	t.Helper()
	var got []string
	if apierrors.IsInvalid(err) {
		for _, cause := range err.(apierrors.APIStatus).Status().Details.Causes {
			got = append(got, cause.Field+": "+cause.Message)
		}
	} else if err != nil {
		t.Errorf("%s = %v, want 422", what, err)
		return
	}
	matches := len(got) == len(want)
	for i := range min(len(got), len(want)) {
		matches = matches && strings.HasPrefix(got[i], want[i])
	}
	if !matches {
		t.Errorf("errors of %s = %q, want %q", what, got, want)
	}
}

// Registrations of v1beta1 are refused in the words of v1beta1, and nothing of an accepted one is lost.
func TestRegistrationsOfV1beta1(t *testing.T) {
	client := registrytest.StartDatabase(t).Serve(t, nil, managedclusteraddon.Definition()).Dynamic(t, "admin")
	beta := client.Resource(v1beta1.SchemeGroupVersion.WithResource("managedclusteraddons")).Namespace("c")
	alpha := client.Resource(v1alpha1.SchemeGroupVersion.WithResource("managedclusteraddons")).Namespace("c")
	const object = "apiVersion: addon.open-cluster-management.io/v1beta1\nkind: ManagedClusterAddOn\nmetadata: {name: a}\n"
	if _, err := beta.Create(t.Context(), parsed(t, object), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const at = "status.registrations[0]."
	for name, c := range map[string]struct {
		registrations string
		want          []string
	}{
		"kubeClient":               {`[{type: kubeClient, kubeClient: {subject: {user: u}, driver: csr}}]`, nil},
		"kubeClient, defaults":     {`[{type: kubeClient}]`, nil},
		"customSigner":             {`[{type: customSigner, customSigner: {signerName: example.com/x, subject: {user: u, organizationUnits: [o]}}}]`, nil},
		"no type":                  {`[{kubeClient: {subject: {user: u}}}]`, []string{at + "type: Required value"}},
		"unknown type":             {`[{type: nonsense, customSigner: {signerName: example.com/x}}]`, []string{at + "type: Unsupported value"}},
		"signer of kubeClient":     {`[{type: kubeClient, customSigner: {signerName: example.com/x}}]`, []string{at + "customSigner: Forbidden"}},
		"client of customSigner":   {`[{type: customSigner, kubeClient: {}, customSigner: {signerName: example.com/x}}]`, []string{at + "kubeClient: Forbidden"}},
		"no signer":                {`[{type: customSigner}]`, []string{at + "customSigner: Required value"}},
		"no name of a signer":      {`[{type: customSigner, customSigner: {subject: {user: u}}}]`, []string{at + "customSigner.signerName: Required value"}},
		"invalid name of a signer": {`[{type: customSigner, customSigner: {signerName: x}}]`, []string{at + "customSigner.signerName: Invalid value"}},
		"signer of the hub":        {`[{type: customSigner, customSigner: {signerName: kubernetes.io/kube-apiserver-client}}]`, []string{at + "customSigner.signerName: Invalid value"}},
		"two drivers": {`[{type: kubeClient, kubeClient: {driver: csr}}, {type: kubeClient, kubeClient: {driver: token}}]`,
			[]string{"status.registrations[1].kubeClient.driver: Invalid value"}},
		"unknown driver": {`[{type: kubeClient, kubeClient: {driver: x}}]`, []string{"status.registrations[].kubeClient.driver: Unsupported value"}},
	} {
		patch := asJSON(t, "status: {registrations: "+c.registrations+"}")
		_, err := beta.Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		wantRefusal(t, name, err, c.want...)
		if err != nil {
			continue
		}
		read, err := beta.Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := beta.UpdateStatus(t.Context(), read, metav1.UpdateOptions{}); err != nil {
			t.Errorf("%s: UpdateStatus() of what was read = %v, want nil", name, err)
		}
	}

	_, err := alpha.Patch(t.Context(), "a", types.MergePatchType, asJSON(t, `status: {registrations: [{signerName: x}]}`), metav1.PatchOptions{}, "status")
	wantRefusal(t, "registration in v1alpha1", err, at+"signerName: Invalid value")
	patch := asJSON(t, "metadata: {annotations: {"+v1beta1.InstallNamespaceAnnotation+": A_}}")
	_, err = beta.Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{})
	wantRefusal(t, "install namespace in v1beta1", err, "metadata.annotations["+v1beta1.InstallNamespaceAnnotation+"]: Invalid value")
}

// A write in v1beta1 keeps the fields that only v1alpha1 has.
func TestFieldsOfV1alpha1AreKept(t *testing.T) {
	client := registrytest.StartDatabase(t).Serve(t, nil, managedclusteraddon.Definition(), clustermanagementaddon.Definition()).Dynamic(t, "admin")
	const head = "apiVersion: addon.open-cluster-management.io/v1alpha1\nmetadata: {name: a}\n"

	addons := v1alpha1.SchemeGroupVersion.WithResource("managedclusteraddons")
	alpha := client.Resource(addons).Namespace("c")
	if _, err := alpha.Create(t.Context(), parsed(t, head+"kind: ManagedClusterAddOn"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const status = `
addOnConfiguration: {crdName: configs.example.com, crName: c}
configReferences:
- {group: example.com, resource: configs, namespace: apps, name: old, lastObservedGeneration: 3}
registrations:
- {signerName: kubernetes.io/kube-apiserver-client, subject: {user: u, groups: [g], organizationUnit: [o]}}
kubeClientDriver: csr
`
	for name, status := range map[string]string{
		"with-a-client":    status,
		"without-a-client": strings.Replace(status, "registrations:\n- {signerName: kubernetes.io/kube-apiserver-client, ", "registrations:\n- {signerName: example.com/x, ", 1),
	} {
		content, err := json.Marshal(map[string]any{"status": parsed(t, status).Object})
		if err != nil {
			t.Fatal(err)
		}
		before, err := alpha.Patch(t.Context(), "a", types.MergePatchType, content, metav1.PatchOptions{}, "status")
		if err != nil {
			t.Fatal(err)
		}
		beta := client.Resource(v1beta1.SchemeGroupVersion.WithResource("managedclusteraddons")).Namespace("c")
		if _, err := beta.Patch(t.Context(), "a", types.MergePatchType, asJSON(t, `status: {namespace: `+name+`}`), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		after, err := alpha.Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, name, before, after, "addOnConfiguration", "configReferences", "registrations", "kubeClientDriver")
	}

	management := client.Resource(v1alpha1.SchemeGroupVersion.WithResource("clustermanagementaddons"))
	before, err := management.Create(t.Context(), parsed(t, head+"kind: ClusterManagementAddOn\nspec: {addOnConfiguration: {crdName: configs.example.com}}"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	beta := client.Resource(v1beta1.SchemeGroupVersion.WithResource("clustermanagementaddons"))
	if _, err := beta.Patch(t.Context(), "a", types.MergePatchType, asJSON(t, "spec: {addOnMeta: {displayName: A}}"), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	after, err := management.Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := after.Object["spec"].(map[string]any)["addOnConfiguration"], before.Object["spec"].(map[string]any)["addOnConfiguration"]; !slices.Equal(asText(t, got), asText(t, want)) {
		t.Errorf("addOnConfiguration after a write in v1beta1 = %v, want %v", got, want)
	}
	for text, want := range map[string]string{
		"[{group: g, resource: r}]": "spec.defaultConfigs[0].name: Required value",
		"[{group: g, resource: r, namespace: apps, name: __reserved_no_default__}]":           "spec.defaultConfigs[0].name: Invalid value",
		"[{group: g, resource: r, name: a}, {group: g, resource: r, name: b}]":                "spec.defaultConfigs[1]: Duplicate value",
		"[{resource: r, name: a}, {group: \"\", resource: r, name: __reserved_no_default__}]": "spec.defaultConfigs[1]: Duplicate value",
	} {
		_, err := beta.Patch(t.Context(), "a", types.MergePatchType, asJSON(t, "spec: {defaultConfigs: "+text+"}"), metav1.PatchOptions{})
		wantRefusal(t, text, err, want)
	}
}

func wantSame(t *testing.T, name string, before, after *unstructured.Unstructured, fields ...string) {
	t.Helper()
	for _, field := range fields {
		want, _, _ := unstructured.NestedFieldNoCopy(before.Object, "status", field)
		got, _, _ := unstructured.NestedFieldNoCopy(after.Object, "status", field)
		if want == nil || !slices.Equal(asText(t, got), asText(t, want)) {
			t.Errorf("%s: status.%s after a write in v1beta1 = %v, want %v", name, field, got, want)
		}
	}
}

func asText(t *testing.T, value any) []byte {
	t.Helper()
	content, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
