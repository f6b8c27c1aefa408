package clusteradm

import (
	"encoding/json"
	"fmt"
	"io/fs"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/resid"
	sigsyaml "sigs.k8s.io/yaml"

	"open-cluster-management.io/hub-apiserver/artifacts"
)

// operation is an operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// jsonPatch returns the patch of one object of the kustomization.
func jsonPatch(kind, name string, operations ...operation) types.Patch {
	content, err := json.Marshal(operations)
	if err != nil {
		// Strings and maps of strings can always be encoded.
		panic(err)
	}
	// The selector is a regular expression that matches whole names.
	return types.Patch{Patch: string(content), Target: &types.Selector{ResId: resid.ResId{Gvk: resid.Gvk{Kind: kind}, Name: name}}}
}

// build returns the objects of a kustomization of the manifests. Its paths are relative to
// the directory artifacts.
func build(k *types.Kustomization) ([]*unstructured.Unstructured, error) {
	k.TypeMeta = types.TypeMeta{APIVersion: types.KustomizationVersion, Kind: types.KustomizationKind}
	content, err := sigsyaml.Marshal(k)
	if err != nil {
		return nil, err
	}
	files := filesys.MakeFsInMemory()
	if err := files.WriteFile("kustomization.yaml", content); err != nil {
		return nil, err
	}
	if err := fs.WalkDir(artifacts.FS, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := artifacts.FS.ReadFile(path)
		if err != nil {
			return err
		}
		return files.WriteFile(path, content)
	}); err != nil {
		return nil, err
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, ".")
	if err != nil {
		return nil, fmt.Errorf("build the manifests: %w", err)
	}
	var objects []*unstructured.Unstructured
	for _, resource := range built.Resources() {
		object, err := resource.Map()
		if err != nil {
			return nil, err
		}
		// Kustomize decodes numbers as int, which objects of apimachinery cannot contain.
		content, err := json.Marshal(object)
		if err != nil {
			return nil, err
		}
		out := &unstructured.Unstructured{}
		if err := out.UnmarshalJSON(content); err != nil {
			return nil, err
		}
		objects = append(objects, out)
	}
	return objects, nil
}
