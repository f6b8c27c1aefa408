package manifests

import (
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	sigsyaml "sigs.k8s.io/yaml"

	"open-cluster-management.io/hub-apiserver/artifacts"
)

// Kinds of manifests.
const (
	KindCRD        = "CustomResourceDefinition"
	KindDeployment = "Deployment"
	KindNamespace  = "Namespace"
	KindSecret     = "Secret"
)

// Read returns the objects of files and directories of the manifests.
func Read(paths ...string) ([]*unstructured.Unstructured, error) {
	return Build(&types.Kustomization{Resources: paths})
}

// Build returns the objects of a kustomization of the manifests. Its paths are relative to the directory artifacts.
func Build(k *types.Kustomization) ([]*unstructured.Unstructured, error) {
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
		// Kustomize decodes numbers as int, which objects of apimachinery cannot contain.
		object := &unstructured.Unstructured{}
		content, err := resource.MarshalJSON()
		if err == nil {
			err = object.UnmarshalJSON(content)
		}
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// Write prints objects as one stream of YAML documents.
func Write(out io.Writer, objects []*unstructured.Unstructured) error {
	printer := printers.YAMLPrinter{}
	for _, object := range objects {
		if err := printer.PrintObj(object, out); err != nil {
			return err
		}
	}
	return nil
}

// Find returns the object of a kind and a name, and converts it to a type unless into is nil.
func Find(objects []*unstructured.Unstructured, kind, name string, into runtime.Object) (*unstructured.Unstructured, error) {
	i := slices.IndexFunc(objects, func(object *unstructured.Unstructured) bool {
		return object.GetKind() == kind && object.GetName() == name
	})
	if i < 0 {
		return nil, fmt.Errorf("the manifests contain no %s %s", kind, name)
	}
	if into == nil {
		return objects[i], nil
	}
	return objects[i], runtime.DefaultUnstructuredConverter.FromUnstructured(objects[i].Object, into)
}

// ChangeContainer changes the container of a Deployment.
func ChangeContainer(objects []*unstructured.Unstructured, name string, change func(container map[string]any)) error {
	deployment, err := Find(objects, KindDeployment, name, nil)
	if err != nil {
		return err
	}
	path := []string{"spec", "template", "spec", "containers"}
	containers, _, err := unstructured.NestedSlice(deployment.Object, path...)
	if err != nil {
		return err
	}
	container, _ := containers[0].(map[string]any)
	change(container)
	return unstructured.SetNestedSlice(deployment.Object, containers, path...)
}

// Args returns arguments as manifests contain them.
func Args(args ...string) []any {
	out := make([]any, 0, len(args))
	for _, arg := range args {
		out = append(out, arg)
	}
	return out
}

// Named returns an object that only has a name.
func Named(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"namespace": namespace, "name": name},
	}}
}

// IsBinding reports whether an object is a RoleBinding or a ClusterRoleBinding.
func IsBinding(object *unstructured.Unstructured) bool {
	return object.GetKind() == "ClusterRoleBinding" || object.GetKind() == "RoleBinding"
}

// Display returns the name of an object in the form of kubectl.
func Display(object *unstructured.Unstructured) string {
	kind := strings.ToLower(object.GroupVersionKind().GroupKind().String())
	if namespace := object.GetNamespace(); namespace != "" {
		return fmt.Sprintf("%s/%s in %s", kind, object.GetName(), namespace)
	}
	return kind + "/" + object.GetName()
}
