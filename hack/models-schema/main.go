// Command models-schema prints the OpenAPI definitions of all served types as
// one JSON document, which the generator of apply configurations reads.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"open-cluster-management.io/hub-apiserver/pkg/generated/openapi"
)

func main() {
	refFunc := func(name string) spec.Ref {
		return spec.MustCreateRef("#/definitions/" + name)
	}
	definitions := make(map[string]spec.Schema)
	for name, def := range openapi.GetOpenAPIDefinitions(refFunc) {
		if v2, ok := def.Schema.Extensions[common.ExtensionV2Schema].(spec.Schema); ok {
			definitions[name] = v2
			continue
		}
		definitions[name] = def.Schema
	}
	err := json.NewEncoder(os.Stdout).Encode(&spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger:     "2.0",
		Info:        &spec.Info{InfoProps: spec.InfoProps{Title: "hub-apiserver", Version: "unversioned"}},
		Paths:       &spec.Paths{},
		Definitions: definitions,
	}})
	if err != nil {
		fmt.Fprintln(os.Stderr, "models-schema:", err)
		os.Exit(1)
	}
}
