package definition

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
)

// StoredForm returns the version in which objects are stored, with StoredRevision.
func (r *Resource) StoredForm() string {
	version := r.StoredVersion().String()
	if r.StoredRevision > 0 {
		return fmt.Sprintf("%s#%d", version, r.StoredRevision)
	}
	return version
}

// ReadableForms returns the forms of stored objects that the server decodes.
func (r *Resource) ReadableForms(scheme *runtime.Scheme) []string {
	versions := slices.Clone(r.Versions)
	for _, version := range scheme.VersionsForGroupKind(schema.GroupKind{Group: r.Group(), Kind: r.Kind}) {
		if version.Version != runtime.APIVersionInternal && !slices.Contains(versions, version) {
			versions = append(versions, version)
		}
	}
	var forms []string
	for _, version := range versions {
		form := *r
		form.Stored = version
		// Every version can be read in all of its revisions so far.
		for form.StoredRevision = 0; form.StoredRevision <= r.StoredRevision; form.StoredRevision++ {
			forms = append(forms, form.StoredForm())
		}
	}
	return forms
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
