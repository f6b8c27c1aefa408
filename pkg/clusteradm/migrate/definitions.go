package migrate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
)

const (
	// conversionAnnotation keeps the conversion of a CustomResourceDefinition. The kept version has no conversion.
	conversionAnnotation = "migration.open-cluster-management.io/conversion"
	// watchesEnd is the time after a change of a CustomResourceDefinition in which each API server of a hub ends the watches of
	// its objects: twice its --request-timeout, which is a minute by default, and some seconds to notice the change.
	watchesEnd = 135 * time.Second
)

// changeDefinition changes the CustomResourceDefinition of a kind unless change returns false, again while others change it.
func (m *migration) changeDefinition(ctx context.Context, kind *handover.CustomKind, change func(crd *unstructured.Unstructured) (bool, error)) error {
	client := m.Dynamic.Resource(handover.CustomResourceDefinitions)
	return cli.Prefix(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		crd, err := client.Get(ctx, kind.CRD.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if changed, err := change(crd); err != nil || !changed {
			return err
		}
		_, err = client.Update(ctx, crd, metav1.UpdateOptions{FieldManager: cli.FieldManager})
		return err
	}), "customresourcedefinitions/%s", kind.CRD.GetName())
}

// keepVersions adds or removes the version by which the objects of a CustomResourceDefinition stay accessible. A
// change of the versions also ends the watches of the kind, so that clients notice who serves it.
func (m *migration) keepVersions(ctx context.Context, keep bool) error {
	for _, kind := range m.kinds {
		if err := m.changeDefinition(ctx, kind, func(crd *unstructured.Unstructured) (bool, error) {
			return keepVersion(crd, kind.Version.Version, keep)
		}); err != nil {
			return err
		}
	}
	for i := 0; keep && i < len(m.kinds); i++ {
		if err := cli.Prefix(cli.Poll(ctx, func(ctx context.Context) (string, error) {
			_, err := m.Dynamic.Resource(m.kinds[i].Kept()).List(ctx, metav1.ListOptions{Limit: 1})
			if apierrors.IsNotFound(err) {
				return err.Error(), nil
			}
			return "", err
		}), "waiting for version %s of %s", handover.KeptVersion, m.kinds[i].Resource.GroupResource()); err != nil {
			return err
		}
	}
	return nil
}

// keepVersion changes a CustomResourceDefinition, and reports whether that was necessary. The version is a copy of
// the given one.
func keepVersion(crd *unstructured.Unstructured, like string, keep bool) (bool, error) {
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		return false, err
	}
	kept := named(versions, handover.KeptVersion)
	if (kept >= 0) == keep {
		return false, nil
	}
	if !keep {
		if err := unstructured.SetNestedSlice(crd.Object, slices.Delete(versions, kept, kept+1), "spec", "versions"); err != nil {
			return false, err
		}
		return true, restoreConversion(crd)
	}
	added := runtime.DeepCopyJSON(versions[named(versions, like)].(map[string]any))
	added["name"], added["storage"], added["served"] = handover.KeptVersion, false, true
	delete(added, "additionalPrinterColumns")
	if err := unstructured.SetNestedSlice(crd.Object, append(versions, added), "spec", "versions"); err != nil {
		return false, err
	}
	return true, saveConversion(crd)
}

// named returns the index of the object with a name in a list, or -1.
func named(list []any, name string) int {
	return slices.IndexFunc(list, func(item any) bool {
		object, ok := item.(map[string]any)
		return ok && object["name"] == name
	})
}

// saveConversion replaces the conversion by a webhook, and saves it in an annotation.
func saveConversion(crd *unstructured.Unstructured) error {
	conversion, found, err := unstructured.NestedMap(crd.Object, "spec", "conversion")
	if err != nil || !found || conversion["strategy"] != "Webhook" {
		return err
	}
	saved, err := json.Marshal(conversion)
	if err != nil {
		return err
	}
	if err := unstructured.SetNestedField(crd.Object, string(saved), "metadata", "annotations", conversionAnnotation); err != nil {
		return err
	}
	return unstructured.SetNestedMap(crd.Object, map[string]any{"strategy": "None"}, "spec", "conversion")
}

func restoreConversion(crd *unstructured.Unstructured) error {
	saved, found := crd.GetAnnotations()[conversionAnnotation]
	if !found {
		return nil
	}
	unstructured.RemoveNestedField(crd.Object, "metadata", "annotations", conversionAnnotation)
	var conversion map[string]any
	if err := json.Unmarshal([]byte(saved), &conversion); err != nil {
		return fmt.Errorf("annotation %s: %w", conversionAnnotation, err)
	}
	return unstructured.SetNestedMap(crd.Object, conversion, "spec", "conversion")
}

// deleteKept deletes the CustomResourceDefinitions, with the objects that they keep.
func (m *migration) deleteKept(ctx context.Context) error {
	pending, err := m.pending(ctx)
	if err != nil {
		return err
	}
	if frozen, err := handover.Frozen(ctx, m.Kube); err != nil {
		return err
	} else if len(pending) > 0 || frozen {
		return fmt.Errorf("the migration has not ended: run clusteradm migrate --to %s first", toServer)
	}
	return m.steps(ctx, []handover.Step{
		{Name: "end the watches of the CustomResourceDefinitions, which takes " + watchesEnd.String(), Run: m.endWatches},
		{Name: "release the kept objects", Run: m.releaseKept},
		{Name: "delete the CustomResourceDefinitions", Run: m.deleteDefinitions},
		{Name: "delete the data for a migration back", Run: func(ctx context.Context) error { return m.removePolicies(ctx, keepPolicy) }},
	})
}

// endWatches ends all watches of the CustomResourceDefinitions. A garbage collector that watched the deletion of the kept objects
// would delete the dependents of the objects in the server, which have the same versions, names and UIDs.
func (m *migration) endWatches(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*watchesEnd, errors.New("the hub has not ended them"))
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	for _, kind := range m.kinds {
		group.Go(func() error { return cli.Prefix(m.endWatchesOf(ctx, kind), "watches of %s", kind.CRD.GetName()) })
	}
	return group.Wait()
}

// endWatchesOf changes a CustomResourceDefinition, and returns after a watch that it has opened before has ended, and the time in
// which the other API servers of the hub end theirs.
func (m *migration) endWatchesOf(ctx context.Context, kind *handover.CustomKind) error {
	open, err := m.Dynamic.Resource(kind.Kept()).Watch(ctx, metav1.ListOptions{TimeoutSeconds: ptr.To(int64(4 * watchesEnd / time.Second))})
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, open.Stop)
	if err := m.changeDefinition(ctx, kind, describeKept); err != nil {
		return err
	}
	changed := time.Now()
	for range open.ResultChan() {
	}
	return cmp.Or(context.Cause(ctx), cli.Sleep(ctx, time.Until(changed.Add(watchesEnd))))
}

// describeKept changes the description of the kept version, which has no effect on objects.
func describeKept(crd *unstructured.Unstructured) (bool, error) {
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		return false, err
	}
	kept := named(versions, handover.KeptVersion)
	if kept < 0 {
		return false, fmt.Errorf("it has no version %s", handover.KeptVersion)
	}
	description := "An object as of the migration. Its deletion began at " + time.Now().UTC().Format(time.RFC3339Nano) + "."
	if err := unstructured.SetNestedField(versions[kept].(map[string]any), description, "schema", "openAPIV3Schema", "description"); err != nil {
		return false, err
	}
	return true, unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions")
}

// withoutFinalizers is a patch that removes the finalizers of an object, for which no controller is left.
var withoutFinalizers = []byte(`{"metadata":{"finalizers":null}}`)

func (m *migration) releaseKept(ctx context.Context) error {
	for _, kind := range m.kinds {
		objects, err := handover.ListAll(ctx, m.Dynamic, kind.Kept())
		if err != nil {
			return err
		}
		if err := cli.ForEach(slices.Collect(maps.Values(objects)), func(object *unstructured.Unstructured) error {
			if len(object.GetFinalizers()) == 0 {
				return nil
			}
			err := cli.Persist(ctx, func(ctx context.Context) error {
				_, err := m.Dynamic.Resource(kind.Kept()).Namespace(object.GetNamespace()).
					Patch(ctx, object.GetName(), types.MergePatchType, withoutFinalizers, metav1.PatchOptions{FieldManager: cli.FieldManager})
				return err
			})
			return cli.Prefix(cli.IgnoreNotFound(err), "release %s", manifests.Display(object))
		}); err != nil {
			return err
		}
	}
	return nil
}

func (m *migration) deleteDefinitions(ctx context.Context) error {
	return cli.ForEach(m.kinds, func(kind *handover.CustomKind) error {
		return cli.Prefix(cli.Poll(ctx, func(ctx context.Context) (string, error) {
			err := m.Dynamic.Resource(handover.CustomResourceDefinitions).Delete(ctx, kind.CRD.GetName(), metav1.DeleteOptions{})
			if apierrors.IsNotFound(err) {
				return "", nil
			}
			return "its objects are being deleted", err
		}), "customresourcedefinitions/%s", kind.CRD.GetName())
	})
}
