package scheme

import (
	"strings"
	"testing"

	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"open-cluster-management.io/hub-apiserver/pkg/generated/openapi"
)

const (
	refPrefix   = "#/definitions/"
	modelPrefix = "io.open-cluster-management."
)

func TestOpenAPI(t *testing.T) {
	namer := apiopenapi.NewDefinitionNamer(Scheme)
	name := func(model string) string {
		friendly, _ := namer.GetDefinitionName(model)
		return friendly
	}
	definitions := openapi.GetOpenAPIDefinitions(func(model string) spec.Ref {
		return spec.MustCreateRef(refPrefix + name(model))
	})

	names := map[string]bool{}
	for model := range definitions {
		names[name(model)] = true
	}
	ours := 0
	for model, definition := range definitions {
		friendly := name(model)
		// kubectl and the aggregator do not unescape slashes in references.
		if strings.Contains(friendly, "/") {
			t.Errorf("definition name = %q, want no slash", friendly)
		}
		described := strings.HasPrefix(friendly, modelPrefix)
		if described {
			ours++
		}
		if described && definition.Schema.Description == "" {
			t.Errorf("description of %s is empty, want a description", friendly)
		}
		checkSchema(t, friendly, &definition.Schema, described, names)
	}
	if ours == 0 {
		t.Errorf("number of definitions with the prefix %s = 0, want at least 1", modelPrefix)
	}
}

func checkSchema(t *testing.T, path string, schema *spec.Schema, described bool, names map[string]bool) {
	t.Helper()
	if ref := schema.Ref.String(); ref != "" && !names[strings.TrimPrefix(ref, refPrefix)] {
		t.Errorf("$ref of %s = %s, want a defined schema", path, ref)
	}
	for key := range schema.Properties {
		property := schema.Properties[key]
		if described && property.Description == "" {
			t.Errorf("description of %s.%s is empty, want a description", path, key)
		}
		checkSchema(t, path+"."+key, &property, described, names)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		checkSchema(t, path+"[]", schema.Items.Schema, false, names)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		checkSchema(t, path+"{}", schema.AdditionalProperties.Schema, false, names)
	}
	for i := range schema.AllOf {
		checkSchema(t, path, &schema.AllOf[i], false, names)
	}
}
