package work

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/work/limits"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// objectID names one object of the managed cluster, whatever API version it is
// read in.
type objectID struct {
	group, resource, namespace, name string
}

func (id objectID) String() string {
	resource := schema.GroupResource{Group: id.group, Resource: id.resource}.String()
	if id.namespace == "" {
		return resource + " " + id.name
	}
	return resource + " " + id.namespace + "/" + id.name
}

// entry is the entry of a record for the object, still without a UID.
func (id objectID) entry(version string) workv1.AppliedManifestResourceMeta {
	return workv1.AppliedManifestResourceMeta{Group: id.group, Resource: id.resource, Namespace: id.namespace, Name: id.name, Version: version}
}

// item is one manifest of a work, resolved against the API of the managed cluster.
type item struct {
	ordinal int
	gvk     schema.GroupVersionKind
	gvr     schema.GroupVersionResource
	// namespace and name are as given, without the namespace of a cluster-scoped kind.
	namespace, name string
	// object is the manifest as it is enforced, nil if it could not be resolved.
	object *unstructured.Unstructured
	config manifestConfig
	// orphan is whether the object outlives the work.
	orphan bool
	// hash identifies everything above: as long as it is the same, there is
	// nothing new to apply.
	hash string
	// err is why the manifest cannot be applied, nil if it can.
	err error
}

func (i *item) id() objectID {
	return objectID{group: i.gvr.Group, resource: i.gvr.Resource, namespace: i.namespace, name: i.name}
}

func (i *item) meta() workv1.ManifestResourceMeta {
	return workv1.ManifestResourceMeta{
		Ordinal: int32(i.ordinal), Group: i.gvk.Group, Version: i.gvk.Version, Kind: i.gvk.Kind,
		Resource: i.gvr.Resource, Namespace: i.namespace, Name: i.name,
	}
}

func (i *item) target() Target {
	strategy := i.config.Strategy.Type
	return Target{
		Ordinal: i.ordinal, Resource: i.gvr, Namespace: i.namespace, Name: i.name, Object: i.object,
		Strategy: strategy, Removed: !i.orphan && strategy != workv1.UpdateStrategyTypeReadOnly,
	}
}

// tracked reports whether the work records the object as its own.
func (i *item) tracked() bool {
	return i.object != nil && i.config.Strategy.Type != workv1.UpdateStrategyTypeReadOnly
}

// recordResource is that of the agent's own records, by which it knows what it may remove.
const recordResource = "appliedmanifestworks"

// errRecord is the error of a manifest of an AppliedManifestWork. A ManifestWork that
// changed the records could have objects of others removed, or keep its own.
var errRecord = errors.New("AppliedManifestWorks are the records of agents, which no ManifestWork delivers")

// mapper finds the resource of a kind. Implementations report a kind that the
// cluster does not serve with an error that meta.IsNoMatchError knows.
type mapper interface {
	mapping(ctx context.Context, kind schema.GroupVersionKind) (*meta.RESTMapping, error)
}

// plan resolves the manifests of a work, in the order of the spec. A manifest
// that cannot be resolved does not keep the others from being.
func plan(ctx context.Context, mapper mapper, work *workv1.ManifestWork) []*item {
	items := make([]*item, len(work.Spec.Workload.Manifests))
	seen := map[objectID]int{}
	left := limits.MaxValues
	tooMany := limits.CheckMatches(len(items), len(work.Spec.ManifestConfigs), orphaningRules(work.Spec.DeleteOption), field.NewPath("spec", "manifestConfigs"))
	for ordinal, given := range work.Spec.Workload.Manifests {
		it := &item{ordinal: ordinal}
		items[ordinal] = it
		if tooMany != nil {
			it.err = tooMany
			continue
		}
		if err := limits.Check(given.Raw, &left, field.NewPath("spec", "workload", "manifests").Index(ordinal)); err != nil {
			it.err = err
			continue
		}
		if it.err = it.resolve(ctx, mapper, work, given.Raw); it.err != nil {
			it.object = nil
			continue
		}
		if first, twice := seen[it.id()]; twice {
			it.err = fmt.Errorf("manifest %d is about the same object", first)
			it.object = nil
			continue
		}
		seen[it.id()] = ordinal
	}
	return items
}

func orphaningRules(option *workv1.DeleteOption) int {
	if option == nil || option.SelectivelyOrphan == nil {
		return 0
	}
	return len(option.SelectivelyOrphan.OrphaningRules)
}

func (i *item) resolve(ctx context.Context, mapper mapper, work *workv1.ManifestWork, raw []byte) error {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(raw); err != nil {
		return fmt.Errorf("not a Kubernetes object: %w", err)
	}
	i.gvk = object.GroupVersionKind()
	i.namespace, i.name = object.GetNamespace(), object.GetName()
	if i.name == "" {
		return errors.New("metadata.name is missing")
	}
	mapping, err := mapper.mapping(ctx, i.gvk)
	if err != nil {
		return err
	}
	i.gvr = mapping.Resource
	if i.gvr.Group == workv1.GroupName && i.gvr.Resource == recordResource {
		return errRecord
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		if i.namespace == "" {
			return fmt.Errorf("metadata.namespace is missing, %s is namespaced", i.gvr.GroupResource())
		}
	} else {
		i.namespace = ""
		object.SetNamespace("")
	}
	if err := normalize(object); err != nil {
		return err
	}
	i.object = object
	i.config = configFor(work.Spec.ManifestConfigs, i.id())
	i.orphan = orphans(work.Spec.DeleteOption, i.id())
	i.hash, err = hashOf(object.Object, i.config, i.orphan)
	return err
}

// hashOf identifies a list of JSON values.
func hashOf(values ...any) (string, error) {
	content, err := json.Marshal(values)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), nil
}
