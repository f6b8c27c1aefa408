package clusteradm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/utils/ptr"
	sigsyaml "sigs.k8s.io/yaml"

	"open-cluster-management.io/hub-apiserver/artifacts"
)

const (
	// fieldManager owns the fields that clusteradm applies.
	fieldManager = "clusteradm"
	// managedByLabel marks the namespaces that clusteradm created and may remove.
	managedByLabel = "app.kubernetes.io/managed-by"

	kindNamespace = "Namespace"
)

// manifests returns the objects of the artifacts that match one of the patterns, without
// duplicates, ordered by pattern and file name.
func manifests(patterns ...string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, pattern := range patterns {
		files, err := fs.Glob(artifacts.FS, pattern)
		if err != nil {
			return nil, err
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("no manifests match %s", pattern)
		}
		for _, file := range files {
			content, err := artifacts.FS.ReadFile(file)
			if err != nil {
				return nil, err
			}
			found, err := decodeManifests(content)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			objects = append(objects, found...)
		}
	}
	// Patterns may overlap, so that a caller can put one file first.
	seen := map[string]bool{}
	return slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool {
		name := display(object)
		again := seen[name]
		seen[name] = true
		return again
	}), nil
}

func decodeManifests(content []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, err
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// writeManifests prints objects as one stream of YAML documents.
func writeManifests(out io.Writer, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		content, err := sigsyaml.Marshal(object.Object)
		if err != nil {
			return fmt.Errorf("%s: %w", display(object), err)
		}
		if _, err := fmt.Fprintf(out, "---\n%s", content); err != nil {
			return err
		}
	}
	return nil
}

// toUnstructured converts a typed object for apply, without the fields that only the
// server sets.
func toUnstructured(object runtime.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	delete(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(content, "spec", "template", "metadata", "creationTimestamp")
	return &unstructured.Unstructured{Object: content}, nil
}

// fromUnstructured converts a manifest to a typed object.
func fromUnstructured(object *unstructured.Unstructured, into runtime.Object) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into); err != nil {
		return fmt.Errorf("%s: %w", display(object), err)
	}
	return nil
}

// display returns the name of an object in the form of kubectl.
func display(object *unstructured.Unstructured) string {
	kind := strings.ToLower(object.GroupVersionKind().GroupKind().String())
	if namespace := object.GetNamespace(); namespace != "" {
		return fmt.Sprintf("%s/%s in %s", kind, object.GetName(), namespace)
	}
	return kind + "/" + object.GetName()
}

// installer applies and removes the objects of one cluster.
type installer struct {
	client dynamic.Interface
	mapper meta.RESTMapper
	out    io.Writer
}

func newInstaller(config *rest.Config, out io.Writer) (*installer, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return &installer{client: client, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco)), out: out}, nil
}

var apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

// aggregates reports whether an aggregated API server serves a group version, rather than
// CustomResourceDefinitions.
func (i *installer) aggregates(ctx context.Context, version schema.GroupVersion) (bool, error) {
	name := version.Version + "." + version.Group
	service, err := i.client.Resource(apiServices).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("APIService %s: %w", name, err)
	}
	_, elsewhere, err := unstructured.NestedMap(service.Object, "spec", "service")
	return elsewhere, err
}

// aggregatedElsewhere reports whether the hub forwards the version of an APIService to another server than its manifest
// names.
func (i *installer) aggregatedElsewhere(ctx context.Context, manifest *unstructured.Unstructured) (bool, error) {
	current, err := i.client.Resource(apiServices).Get(ctx, manifest.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("APIService %s: %w", manifest.GetName(), err)
	}
	service, _, err := unstructured.NestedMap(current.Object, "spec", "service")
	if err != nil || service == nil {
		return false, err
	}
	wanted, _, err := unstructured.NestedMap(manifest.Object, "spec", "service")
	return service["name"] != wanted["name"] || service["namespace"] != wanted["namespace"], err
}

func (i *installer) resource(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	gvk := object.GroupVersionKind()
	mapping, err := i.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return i.client.Resource(mapping.Resource).Namespace(object.GetNamespace()), nil
	}
	return i.client.Resource(mapping.Resource), nil
}

// apply applies the objects and prints the result of each. It leaves an existing namespace
// unchanged, because clusteradm must not remove it later.
func (i *installer) apply(ctx context.Context, objects ...*unstructured.Unstructured) error {
	changes, err := i.plan(ctx, objects...)
	if err != nil {
		return err
	}
	return i.write(ctx, changes)
}

func (i *installer) applyOne(ctx context.Context, object *unstructured.Unstructured) error {
	resource, err := i.resource(object)
	if err != nil {
		return err
	}
	if object.GetKind() == kindNamespace {
		object = object.DeepCopy()
		labels := object.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[managedByLabel] = fieldManager
		object.SetLabels(labels)
	}
	// The caller has decided about the conflicts of the plan.
	_, err = resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return err
}

// sameContent reports whether two objects are equal except for metadata that every write
// changes.
func sameContent(a, b *unstructured.Unstructured) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	for _, object := range []*unstructured.Unstructured{a, b} {
		object.SetManagedFields(nil)
		object.SetResourceVersion("")
	}
	return equality.Semantic.DeepEqual(a.Object, b.Object)
}

// remove deletes the objects that exist, and prints their names. It does not wait for
// their finalizers.
func (i *installer) remove(ctx context.Context, objects ...*unstructured.Unstructured) error {
	var errs []error
	for _, object := range objects {
		resource, err := i.resource(object)
		if err == nil {
			err = resource.Delete(ctx, object.GetName(), metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
		}
		switch {
		case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		case err != nil:
			errs = append(errs, fmt.Errorf("delete %s: %w", display(object), err))
		default:
			i.say("%s deleted", display(object))
		}
	}
	return errors.Join(errs...)
}

// say prints a line of progress. It ignores errors, because a closed output must not stop
// the command.
func (i *installer) say(format string, args ...any) { say(i.out, format, args...) }

func say(out io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(out, format+"\n", args...)
}
