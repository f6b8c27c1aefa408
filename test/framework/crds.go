package framework

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"open-cluster-management.io/hub-apiserver/pkg/generated/openapi"
)

// addedFields are the fields that the server has in addition to the CustomResourceDefinitions of OCM.
var addedFields = map[string][][]string{
	"ClusterPermission":     {{"spec", "roleRefs"}, {"status", "approval"}},
	"ManagedServiceAccount": {{"spec", "audiences"}, {"status", "serviceAccountRef"}, {"status", "clusters"}},
	"ManagedCluster":        {{"status", "acceptance"}},
	"ManifestWork":          {{"status", "executorChoice"}},
}

// OCMKinds are the kinds of a hub that runs OCM, with the version in which it stores them.
var OCMKinds = []struct {
	Group, Version, Kind, Resource string
	ClusterScoped                  bool
}{
	{"cluster", "v1", "ManagedCluster", "managedclusters", true},
	{"cluster", "v1beta2", "ManagedClusterSet", "managedclustersets", true},
	{"cluster", "v1beta2", "ManagedClusterSetBinding", "managedclustersetbindings", false},
	{"addon", "v1alpha1", "ClusterManagementAddOn", "clustermanagementaddons", true},
	{"addon", "v1alpha1", "ManagedClusterAddOn", "managedclusteraddons", false},
	{"addon", "v1alpha1", "AddOnDeploymentConfig", "addondeploymentconfigs", false},
	{"authentication", "v1beta1", "ManagedServiceAccount", "managedserviceaccounts", false},
	{"rbac", "v1alpha1", "ClusterPermission", "clusterpermissions", false},
	{"work", "v1", "ManifestWork", "manifestworks", false},
}

// OCMDefinitions returns the CustomResourceDefinitions of OCMKinds, with schemas from the types of this module
// without the fields that only the server has.
func OCMDefinitions(t testing.TB) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	for _, kind := range OCMKinds {
		scope := "Namespaced"
		if kind.ClusterScoped {
			scope = "Cluster"
		}
		stored := definedVersion(t, kind.Group, kind.Version, kind.Kind)
		stored["storage"] = true
		out = append(out, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": kind.Resource + "." + kind.Group + ".open-cluster-management.io"},
			"spec": map[string]any{
				"group": kind.Group + ".open-cluster-management.io", "scope": scope,
				"names": map[string]any{
					"kind": kind.Kind, "listKind": kind.Kind + "List", "plural": kind.Resource, "singular": strings.ToLower(kind.Kind),
				},
				"versions": []any{stored},
			},
		}})
	}
	return out
}

// definedVersion returns a version of a CustomResourceDefinition, in which no objects are stored.
func definedVersion(t testing.TB, group, version, kind string) map[string]any {
	t.Helper()
	definitions := openapi.GetOpenAPIDefinitions(func(path string) spec.Ref {
		return spec.MustCreateRef("#/definitions/" + path)
	})
	name := "io.open-cluster-management." + group + "." + version + "." + kind
	definition, found := definitions[name]
	if !found {
		t.Fatalf("the OpenAPI definitions do not contain %s", name)
	}
	schema := structural(t, definitions, &definition.Schema)
	properties := schema["properties"].(map[string]any)
	delete(properties, "apiVersion")
	delete(properties, "kind")
	properties["metadata"] = map[string]any{"type": "object"}
	for _, path := range addedFields[kind] {
		parent, _, _ := unstructured.NestedMap(properties, path[0], "properties")
		if parent[path[1]] == nil {
			t.Fatalf("%s has no field %s", name, strings.Join(path, "."))
		}
		unstructured.RemoveNestedField(properties, path[0], "properties", path[1])
	}
	return map[string]any{
		"name": version, "served": true, "storage": false, "subresources": map[string]any{"status": map[string]any{}},
		"schema": map[string]any{"openAPIV3Schema": schema},
	}
}

// structural returns a schema without references, as CustomResourceDefinitions require it.
func structural(t testing.TB, definitions map[string]common.OpenAPIDefinition, schema *spec.Schema) map[string]any {
	t.Helper()
	if target := schema.Ref.String(); target != "" {
		name := strings.TrimPrefix(target, "#/definitions/")
		if strings.HasSuffix(name, ".Quantity") || strings.HasSuffix(name, ".IntOrString") {
			return map[string]any{"x-kubernetes-int-or-string": true}
		}
		definition, found := definitions[name]
		if !found {
			t.Fatalf("the OpenAPI definitions do not contain %s", name)
		}
		return structural(t, definitions, &definition.Schema)
	}
	if len(schema.AllOf) == 1 {
		return structural(t, definitions, &schema.AllOf[0])
	}
	if len(schema.Type) == 0 {
		return map[string]any{"x-kubernetes-preserve-unknown-fields": true}
	}
	out := map[string]any{"type": schema.Type[0]}
	if schema.Format != "" {
		out["format"] = schema.Format
	}
	switch {
	case schema.Type[0] == "array":
		out["items"] = structural(t, definitions, schema.Items.Schema)
	case schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil:
		out["additionalProperties"] = structural(t, definitions, schema.AdditionalProperties.Schema)
	case schema.Type[0] == "object" && len(schema.Properties) == 0:
		out["x-kubernetes-preserve-unknown-fields"] = true
	case schema.Type[0] == "object":
		properties := map[string]any{}
		for name := range schema.Properties {
			property := schema.Properties[name]
			properties[name] = structural(t, definitions, &property)
		}
		out["properties"] = properties
	}
	return out
}
