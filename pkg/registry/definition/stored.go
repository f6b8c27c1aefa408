package definition

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
)

// ReadableVersions returns the versions of stored objects that the server decodes.
func (r *Resource) ReadableVersions(scheme *runtime.Scheme) []string {
	var out []string
	for _, version := range scheme.VersionsForGroupKind(schema.GroupKind{Group: r.Group(), Kind: r.Kind}) {
		if version.Version != runtime.APIVersionInternal {
			out = append(out, version.String())
		}
	}
	for _, version := range r.Versions {
		if !slices.Contains(out, version.String()) {
			out = append(out, version.String())
		}
	}
	return out
}

// InStorage returns the names of the row in storage: its own, and those of additional stores.
func (r *Resource) InStorage() []schema.GroupResource {
	out := []schema.GroupResource{r.GroupResource()}
	for _, name := range slices.Sorted(maps.Keys(r.Stores)) {
		if name != r.Name {
			out = append(out, schema.GroupResource{Group: r.Group(), Resource: name})
		}
	}
	return out
}

// OpenStorage opens a store of one of the names of InStorage without a cache. It returns a function that closes
// the store.
func (r *Resource) OpenStorage(codecs serializer.CodecFactory, getter generic.RESTOptionsGetter, name schema.GroupResource) (storage.Interface, factory.DestroyFunc, error) {
	options, err := storedAs{getter, codecs, r.StoredVersion()}.GetRESTOptions(name, r.New())
	if err != nil {
		return nil, nil, err
	}
	return factory.Create(*options.StorageConfig, r.New, r.NewList, "/"+options.ResourcePrefix)
}
