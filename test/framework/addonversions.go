package framework

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	addonv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	addonv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
)

// ConvertAddOns adds the version v1beta1 to the CustomResourceDefinitions of add-ons. As in OCM, objects are stored in
// v1alpha1, and a webhook converts them.
func ConvertAddOns(t testing.TB, definitions []*unstructured.Unstructured) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(serveConversion))
	t.Cleanup(server.Close)
	for _, definition := range definitions {
		spec := definition.Object["spec"].(map[string]any)
		if spec["group"] != addonv1alpha1.GroupName {
			continue
		}
		kind, _, _ := unstructured.NestedString(spec, "names", "kind")
		spec["versions"] = append(spec["versions"].([]any), definedVersion(t, "addon", addonv1beta1.SchemeGroupVersion.Version, kind))
		spec["conversion"] = map[string]any{"strategy": "Webhook", "webhook": map[string]any{
			"conversionReviewVersions": []any{"v1"},
			"clientConfig": map[string]any{
				"url":      server.URL,
				"caBundle": base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})),
			},
		}}
	}
}

// conversionReview is a ConversionReview of apiextensions.k8s.io/v1.
type conversionReview struct {
	metav1.TypeMeta
	Request struct {
		UID               string
		DesiredAPIVersion string
		Objects           []json.RawMessage
	}
}

func serveConversion(w http.ResponseWriter, request *http.Request) {
	review := conversionReview{}
	if err := json.NewDecoder(request.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	result := map[string]any{"status": metav1.StatusSuccess}
	var converted []runtime.Object
	for _, content := range review.Request.Objects {
		object, err := convert(content, review.Request.DesiredAPIVersion)
		if err != nil {
			result = map[string]any{"status": metav1.StatusFailure, "message": err.Error()}
			break
		}
		converted = append(converted, object)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": review.APIVersion, "kind": review.Kind,
		"response": map[string]any{"uid": review.Request.UID, "convertedObjects": converted, "result": result},
	})
}

// convert converts an object as the server does, without defaults.
func convert(content []byte, version string) (runtime.Object, error) {
	kind := metav1.TypeMeta{}
	if err := json.Unmarshal(content, &kind); err != nil {
		return nil, err
	}
	object, err := scheme.Scheme.New(kind.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(content, object); err != nil {
		return nil, err
	}
	internal, err := scheme.Scheme.ConvertToVersion(object, schema.GroupVersion{Group: kind.GroupVersionKind().Group, Version: runtime.APIVersionInternal})
	if err != nil {
		return nil, err
	}
	wanted, err := schema.ParseGroupVersion(version)
	if err != nil {
		return nil, err
	}
	return scheme.Scheme.ConvertToVersion(internal, wanted)
}
