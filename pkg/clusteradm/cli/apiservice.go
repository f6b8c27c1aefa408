package cli

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// KindAPIService is the kind of an APIService.
const KindAPIService = "APIService"

// APIServices is the resource of the APIServices of a hub.
var APIServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

// reasonLocal is the reason of the condition Available of an APIService whose version the hub serves itself.
const reasonLocal = "Local"

// APIServiceName returns the name of the APIService of a version.
func APIServiceName(version schema.GroupVersion) string { return version.Version + "." + version.Group }

// Aggregated reports whether a hub forwards a version to an API server, rather than serving it from
// CustomResourceDefinitions.
func Aggregated(ctx context.Context, client dynamic.Interface, version schema.GroupVersion) (bool, error) {
	service, err := forwardedTo(ctx, client, APIServiceName(version))
	return service != nil, err
}

// AggregatedElsewhere reports whether a hub forwards the version of an APIService to another server than its manifest
// names.
func AggregatedElsewhere(ctx context.Context, client dynamic.Interface, manifest *unstructured.Unstructured) (bool, error) {
	service, err := forwardedTo(ctx, client, manifest.GetName())
	wanted, _, _ := unstructured.NestedMap(manifest.Object, "spec", "service")
	return service != nil && (service["name"] != wanted["name"] || service["namespace"] != wanted["namespace"]), err
}

// forwardedTo returns the Service in an APIService, or nil if there is none.
func forwardedTo(ctx context.Context, client dynamic.Interface, name string) (map[string]any, error) {
	current, err := client.Resource(APIServices).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("APIService %s: %w", name, err)
	}
	service, _, err := unstructured.NestedMap(current.Object, "spec", "service")
	return service, err
}

// WaitForAPIService waits until pending returns no reason to wait for an APIService.
func WaitForAPIService(ctx context.Context, client dynamic.Interface, name string, pending func(*unstructured.Unstructured) string) error {
	if err := Poll(ctx, func(ctx context.Context) (string, error) {
		current, err := client.Resource(APIServices).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return pending(current), nil
	}); err != nil {
		return fmt.Errorf("APIService %s: %w", name, err)
	}
	return nil
}

// Unavailable returns the reason why an APIService is not Available, or an empty string if it is.
func Unavailable(apiService *unstructured.Unstructured) string {
	condition := Condition(apiService, "Available")
	if condition == nil {
		return "not checked yet"
	}
	if _, forwarded, _ := unstructured.NestedMap(apiService.Object, "spec", "service"); forwarded && condition["reason"] == reasonLocal {
		return "the hub has not checked it yet since it forwards requests to it"
	}
	if condition["status"] == string(metav1.ConditionTrue) {
		return ""
	}
	return fmt.Sprintf("%v: %v", condition["reason"], condition["message"])
}

// NotLocal returns a reason to wait until a hub serves the version of an APIService itself, or an empty string if it does.
func NotLocal(apiService *unstructured.Unstructured) string {
	if condition := Condition(apiService, "Available"); condition != nil && condition["reason"] == reasonLocal {
		return ""
	}
	return "it is not local yet"
}

// Condition returns a condition of an object, or nil if it has none of that type.
func Condition(object *unstructured.Unstructured, of string) map[string]any {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, entry := range conditions {
		if condition, ok := entry.(map[string]any); ok && condition["type"] == of {
			return condition
		}
	}
	return nil
}
