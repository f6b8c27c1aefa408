package manifests

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
)

// managedByLabel marks the namespaces that clusteradm created and may remove.
const managedByLabel = "app.kubernetes.io/managed-by"

// Applier applies and removes the objects of one cluster.
type Applier struct {
	env    cli.Environment
	client dynamic.Interface
	mapper meta.RESTMapper
}

// NewApplier returns an Applier that prints the result for each object.
func NewApplier(env cli.Environment, clients *cli.Clients) *Applier {
	return &Applier{env: env, client: clients.Dynamic, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(clients.Kube.Discovery()))}
}

func (a *Applier) resource(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	gvk := object.GroupVersionKind()
	mapping, err := a.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err
	}
	// The namespace of a cluster-scoped object is empty.
	return a.client.Resource(mapping.Resource).Namespace(object.GetNamespace()), nil
}

// Live returns an object as the cluster has it, or nil if it does not exist.
func (a *Applier) Live(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	resource, err := a.resource(object)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	live, err := cli.Optional(resource.Get(ctx, object.GetName(), metav1.GetOptions{}))
	return live, cli.Prefix(err, "get %s", Display(object))
}

// Write makes the changes of a plan, and prints the result of each.
func (a *Applier) Write(ctx context.Context, changes []Change) error {
	for _, c := range changes {
		if c.Remove {
			if err := a.Remove(ctx, c.Manifest); err != nil {
				return err
			}
			continue
		}
		outcome := "configured"
		switch {
		case c.Live == nil:
			outcome = "created"
		case c.Manifest.GetKind() == KindNamespace:
			outcome = "exists"
		case c.none():
			outcome = "unchanged"
		}
		if c.Live == nil || outcome == "configured" {
			if err := a.apply(ctx, c.Manifest); err != nil {
				return fmt.Errorf("apply %s: %w", Display(c.Manifest), err)
			}
		}
		a.env.Say("%s %s", Display(c.Manifest), outcome)
	}
	return nil
}

func (a *Applier) apply(ctx context.Context, object *unstructured.Unstructured) error {
	resource, err := a.resource(object)
	if err != nil {
		return err
	}
	if object.GetKind() == KindNamespace {
		object = object.DeepCopy()
		if err := unstructured.SetNestedField(object.Object, cli.FieldManager, "metadata", "labels", managedByLabel); err != nil {
			return err
		}
	}
	// The caller has decided about the conflicts of the plan.
	_, err = resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: cli.FieldManager, Force: true})
	return err
}

// Remove deletes the objects that exist, and prints their names. It does not wait for their finalizers.
func (a *Applier) Remove(ctx context.Context, objects ...*unstructured.Unstructured) error {
	var errs []error
	for _, object := range objects {
		resource, err := a.resource(object)
		if err == nil {
			err = resource.Delete(ctx, object.GetName(), metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
		}
		switch {
		case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		case err != nil:
			errs = append(errs, fmt.Errorf("delete %s: %w", Display(object), err))
		default:
			a.env.Say("%s deleted", Display(object))
		}
	}
	return errors.Join(errs...)
}

// Created reports whether clusteradm created a namespace.
func Created(namespace metav1.Object) bool {
	return namespace.GetLabels()[managedByLabel] == cli.FieldManager
}
