package localhub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"open-cluster-management.io/hub-apiserver/test/await"
)

// fieldManager owns the fields that this package applies.
const fieldManager = "localhub"

// ReadManifests returns the objects of the YAML files in dir, in the order of the
// files' names. It returns an error if dir contains no YAML file, because the path
// is then misspelled.
func ReadManifests(dir string) ([]*unstructured.Unstructured, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no YAML files in %s", dir)
	}
	slices.Sort(paths)
	var objects []*unstructured.Unstructured
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
		for {
			object := &unstructured.Unstructured{}
			if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			// Skip empty documents and the Kustomization, which only lists the other files.
			if len(object.Object) > 0 && object.GetKind() != "Kustomization" {
				objects = append(objects, object)
			}
		}
	}
	return objects, nil
}

// Apply creates or updates objects on the cluster with server-side apply, first
// Namespaces and CustomResourceDefinitions. If a kind is not served yet, or not
// available, Apply waits for it until the deadline of ctx, await.Patience at most.
func (c *Cluster) Apply(ctx context.Context, objects ...*unstructured.Unstructured) error {
	config := c.AdminConfig()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))

	objects = slices.Clone(objects)
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	for _, object := range objects {
		if err := apply(ctx, client, mapper, object); err != nil {
			return fmt.Errorf("apply %s %s on %s: %w", object.GetKind(), object.GetName(), c.Name, err)
		}
	}
	return nil
}

func rank(object *unstructured.Unstructured) int {
	switch object.GetKind() {
	case "Namespace":
		return 0
	case "CustomResourceDefinition":
		return 1
	default:
		return 2
	}
}

func apply(ctx context.Context, client dynamic.Interface, mapper *restmapper.DeferredDiscoveryRESTMapper, object *unstructured.Unstructured) error {
	gvk := object.GroupVersionKind()
	var final error
	err := await.Poll(ctx, func(ctx context.Context) error {
		mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if meta.IsNoMatchError(err) {
			mapper.Reset()
			return fmt.Errorf("the kind is not served: %w", err)
		}
		if err == nil {
			var resource dynamic.ResourceInterface = client.Resource(mapping.Resource)
			if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
				resource = client.Resource(mapping.Resource).Namespace(object.GetNamespace())
			}
			_, err = resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
		}
		if err != nil && !apierrors.IsServiceUnavailable(err) && !apierrors.IsTooManyRequests(err) {
			final = err
			return nil
		}
		return err
	})
	return errors.Join(err, final)
}
