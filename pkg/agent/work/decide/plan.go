package decide

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

// ObjectID identifies an object of the managed cluster independently of the API version.
type ObjectID struct {
	Group, Resource, Namespace, Name string
}

func (id ObjectID) String() string {
	resource := schema.GroupResource{Group: id.Group, Resource: id.Resource}.String()
	if id.Namespace == "" {
		return resource + " " + id.Name
	}
	return resource + " " + id.Namespace + "/" + id.Name
}

// Item is one manifest of a ManifestWork, resolved against the API of the managed cluster.
type Item struct {
	Ordinal int
	GVK     schema.GroupVersionKind
	GVR     schema.GroupVersionResource
	// Namespace is empty for a cluster-scoped kind, even if the manifest sets one.
	Namespace, Name string
	// Object is the normalized manifest. It is nil if the manifest could not be resolved.
	Object *unstructured.Unstructured
	Config Config
	// Orphan is true if the object stays when the ManifestWork is deleted.
	Orphan bool
	// Hash covers Object, Config and Orphan.
	Hash string
	// Err is the reason why the manifest cannot be applied.
	Err error
}

// ID returns the ID of the object.
func (i *Item) ID() ObjectID {
	return ObjectID{Group: i.GVR.Group, Resource: i.GVR.Resource, Namespace: i.Namespace, Name: i.Name}
}

// Meta returns the description of the manifest in the status of the ManifestWork.
func (i *Item) Meta() workv1.ManifestResourceMeta {
	return workv1.ManifestResourceMeta{
		Ordinal: int32(i.Ordinal), Group: i.GVK.Group, Version: i.GVK.Version, Kind: i.GVK.Kind,
		Resource: i.GVR.Resource, Namespace: i.Namespace, Name: i.Name,
	}
}

// Tracked reports whether the object is listed in the AppliedManifestWork.
func (i *Item) Tracked() bool {
	return i.Object != nil && i.Config.Strategy.Type != workv1.UpdateStrategyTypeReadOnly
}

// recordResource is the resource of the records that list the objects that the agent may remove.
const recordResource = "appliedmanifestworks"

// errRecord is the error of a manifest of an AppliedManifestWork. With such a manifest, a
// ManifestWork could remove objects of other ManifestWorks, or keep its own objects.
var errRecord = errors.New("a ManifestWork cannot contain an AppliedManifestWork; only the agent writes them")

// Mapper finds the resource of a kind. If the cluster does not serve the kind, it returns an error
// that meta.IsNoMatchError matches.
type Mapper interface {
	Mapping(ctx context.Context, kind schema.GroupVersionKind) (*meta.RESTMapping, error)
}

// Plan resolves the manifests of a ManifestWork, in the order of the spec. The error of a
// manifest does not affect the others.
func Plan(ctx context.Context, mapper Mapper, work *workv1.ManifestWork) []*Item {
	items := make([]*Item, len(work.Spec.Workload.Manifests))
	seen := map[ObjectID]int{}
	left := limits.MaxValues
	tooMany := limits.CheckMatches(len(items), len(work.Spec.ManifestConfigs), orphaningRules(work.Spec.DeleteOption), field.NewPath("spec", "manifestConfigs"))
	for ordinal, manifest := range work.Spec.Workload.Manifests {
		it := &Item{Ordinal: ordinal}
		items[ordinal] = it
		if tooMany != nil {
			it.Err = tooMany
			continue
		}
		if err := limits.Check(manifest.Raw, &left, field.NewPath("spec", "workload", "manifests").Index(ordinal)); err != nil {
			it.Err = err
			continue
		}
		it.Err = it.resolve(ctx, mapper, work, manifest.Raw)
		if first, twice := seen[it.ID()]; it.Err == nil && twice {
			it.Err = fmt.Errorf("manifest %d is about the same object", first)
		}
		if it.Err != nil {
			it.Object = nil
			continue
		}
		seen[it.ID()] = ordinal
	}
	return items
}

func orphaningRules(option *workv1.DeleteOption) int {
	if option == nil || option.SelectivelyOrphan == nil {
		return 0
	}
	return len(option.SelectivelyOrphan.OrphaningRules)
}

func (i *Item) resolve(ctx context.Context, mapper Mapper, work *workv1.ManifestWork, raw []byte) error {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(raw); err != nil {
		return fmt.Errorf("not a Kubernetes object: %w", err)
	}
	i.GVK = object.GroupVersionKind()
	i.Namespace, i.Name = object.GetNamespace(), object.GetName()
	if i.Name == "" {
		return errors.New("metadata.name is missing")
	}
	mapping, err := mapper.Mapping(ctx, i.GVK)
	if err != nil {
		return err
	}
	i.GVR = mapping.Resource
	if i.GVR.Group == workv1.GroupName && i.GVR.Resource == recordResource {
		return errRecord
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		if i.Namespace == "" {
			return fmt.Errorf("metadata.namespace is missing, %s is namespaced", i.GVR.GroupResource())
		}
	} else {
		i.Namespace = ""
		object.SetNamespace("")
	}
	if err := normalize(object); err != nil {
		return err
	}
	i.Object = object
	i.Config = ConfigFor(work.Spec.ManifestConfigs, i.ID())
	i.Orphan = Orphans(work.Spec.DeleteOption, i.ID())
	i.Hash = Hash(object.Object, i.Config, i.Orphan)
	return nil
}

// Hash returns the hash of a list of values that were decoded from JSON, or are texts.
func Hash(values ...any) string {
	content, _ := json.Marshal(values) // such values can be encoded
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
