package definition

import (
	"context"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// REST serves a stored resource.
type REST struct {
	*genericregistry.Store
	shortNames, categories []string
	// server stores what the server has made of an object.
	server *genericregistry.Store
	counted
}

var (
	_ rest.StandardStorage    = &REST{}
	_ rest.ShortNamesProvider = &REST{}
	_ rest.CategoriesProvider = &REST{}
)

// ShortNames implements rest.ShortNamesProvider.
func (r *REST) ShortNames() []string { return r.shortNames }

// Categories implements rest.CategoriesProvider.
func (r *REST) Categories() []string { return r.categories }

// Create implements rest.Creater.
func (r *REST) Create(ctx context.Context, obj runtime.Object, admit rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	return r.countCreate(r.Store, ctx, obj, admit, options)
}

// Update implements rest.Updater; patches and server-side apply end here too.
func (r *REST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, admitCreate rest.ValidateObjectFunc, admitUpdate rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.countUpdate(r.Store, ctx, name, objInfo, admitCreate, admitUpdate, forceAllowCreate, options)
}

// Rewrite replaces a stored object by what change makes of it, for a subresource
// that decides itself what of an object may change. admit and options are those of
// the request. change gets the object as given and as stored, may run several
// times, and returns the stored one unchanged to write nothing. Whether the UID and
// the resource version that are given must match is up to change as well.
func (r *REST) Rewrite(ctx context.Context, name string, given rest.UpdatedObjectInfo, change rest.TransformFunc, admit rest.ValidateObjectUpdateFunc, options *metav1.UpdateOptions) (runtime.Object, error) {
	updated, _, err := r.server.Update(ctx, name, rest.WrapUpdatedObjectInfo(unconditional{given}, change), rest.ValidateAllObjectFunc, admit, false, options)
	return updated, err
}

type unconditional struct {
	rest.UpdatedObjectInfo
}

// Preconditions implements rest.UpdatedObjectInfo.
func (unconditional) Preconditions() *metav1.Preconditions { return nil }

// statusREST serves the status subresource of a stored resource.
type statusREST struct {
	store *genericregistry.Store
	counted
}

var (
	_ rest.Getter         = &statusREST{}
	_ rest.Patcher        = &statusREST{}
	_ rest.TableConvertor = &statusREST{}
)

// New implements rest.Storage.
func (s *statusREST) New() runtime.Object { return s.store.New() }

// Destroy implements rest.Storage. The main storage owns what there is to destroy.
func (s *statusREST) Destroy() {}

// Get implements rest.Getter.
func (s *statusREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return s.store.Get(ctx, name, options)
}

// Update implements rest.Updater. A status can be written only of an object that exists.
func (s *statusREST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc, updateValidation rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return s.countUpdate(s.store, ctx, name, objInfo, createValidation, updateValidation, false, options)
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (s *statusREST) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.store.GetResetFields()
}

// ConvertToTable implements rest.TableConvertor.
func (s *statusREST) ConvertToTable(ctx context.Context, object runtime.Object, tableOptions runtime.Object) (*metav1.Table, error) {
	return s.store.ConvertToTable(ctx, object, tableOptions)
}

// Storages builds what serves the resource in each of its versions, by its path in
// the URL: the name of the resource, name/status and name/subresource. All
// versions share one store.
func (r *Resource) Storages(scheme *runtime.Scheme, codecs serializer.CodecFactory, getter generic.RESTOptionsGetter) (map[schema.GroupVersion]map[string]rest.Storage, error) {
	if err := r.registerSelectableFields(scheme); err != nil {
		return nil, err
	}
	bound := r.Strategy.bind(r, scheme)
	store, err := r.store(bound, r.GroupResource(), storedAs{getter, codecs, r.storedVersion()})
	if err != nil {
		return nil, err
	}
	r.serveCounter(store)
	for _, name := range slices.Sorted(maps.Keys(r.Stores)) {
		kept := store
		if name != r.Name {
			kept, err = r.store(bound, schema.GroupResource{Group: r.Group(), Resource: name}, uncached{storedAs{getter, codecs, r.storedVersion()}})
			if err != nil {
				return nil, err
			}
			destroy := store.DestroyFunc
			store.DestroyFunc = func() {
				kept.Destroy()
				destroy()
			}
		}
		handed := r.newREST(kept, bound)
		if kept != store {
			handed.counter = nil
		}
		r.Stores[name](handed)
	}

	served := r.newREST(store, bound)
	served.shortNames, served.categories = r.ShortNames, r.Categories
	main := r.paths(served, bound)
	// In a second group, short names and categories would make kubectl ask which of
	// two resources is meant, and list every object twice.
	other := r.paths(r.newREST(store, bound), bound)
	out := map[schema.GroupVersion]map[string]rest.Storage{}
	for _, version := range r.Versions {
		if out[version] = main; version.Group != r.Group() {
			out[version] = other
		}
	}
	return out, nil
}

// store builds a store for objects of the resource's type.
func (r *Resource) store(bound strategies, storedBy schema.GroupResource, getter generic.RESTOptionsGetter) (*genericregistry.Store, error) {
	store := &genericregistry.Store{
		NewFunc:                   r.New,
		NewListFunc:               r.NewList,
		DefaultQualifiedResource:  storedBy,
		SingularQualifiedResource: r.Versions[0].WithResource(r.Singular).GroupResource(),
		CreateStrategy:            bound.main,
		UpdateStrategy:            bound.main,
		DeleteStrategy:            bound.main,
		ResetFieldsStrategy:       bound.main,
		TableConvertor:            tableConvertor{columns: r.Columns},
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: getter, AttrFunc: bound.attributes}); err != nil {
		return nil, fmt.Errorf("store of %s: %w", storedBy, err)
	}
	return store, nil
}

func (r *Resource) newREST(store *genericregistry.Store, bound strategies) *REST {
	server := new(*store)
	server.UpdateStrategy = bound.server
	return &REST{Store: store, server: server, counted: counted{counter: r.Counter, parts: bound.parts, resource: r}}
}

// paths are what serves the resource and what is below it.
func (r *Resource) paths(main *REST, bound strategies) map[string]rest.Storage {
	out := map[string]rest.Storage{r.Name: main}
	if r.Wrap != nil {
		out[r.Name] = r.Wrap(main)
	}
	if r.ServerOwned {
		out[r.Name] = &readREST{main}
	}
	if r.HasStatus() {
		statusStore := *main.Store
		statusStore.UpdateStrategy = bound.status
		statusStore.ResetFieldsStrategy = bound.status
		out[r.Name+"/status"] = &statusREST{store: &statusStore, counted: main.counted}
	}
	for name, subresource := range r.Subresources {
		out[r.Name+"/"+name] = subresource(main)
	}
	return out
}

// storedAs stores objects in one version. A codec for all resources would have
// to guess: the kinds of one group may be in different versions.
type storedAs struct {
	generic.RESTOptionsGetter
	codecs  serializer.CodecFactory
	version schema.GroupVersion
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (s storedAs) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := s.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	config := *options.StorageConfig
	config.Codec, config.EncodeVersioner = compactCodec{s.codecs.LegacyCodec(s.version), newInterner()}, s.version
	options.StorageConfig = &config
	return options, nil
}

// uncached stores what nobody watches.
type uncached struct {
	storedAs
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (u uncached) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := u.storedAs.GetRESTOptions(resource, example)
	options.Decorator = generic.UndecoratedStorage
	return options, err
}

func (r *Resource) registerSelectableFields(scheme *runtime.Scheme) error {
	selectable := r.SelectableFields()
	for _, version := range r.Versions {
		err := scheme.AddFieldLabelConversionFunc(version.WithKind(r.Kind), func(label, value string) (string, string, error) {
			if !slices.Contains(selectable, label) {
				return "", "", fmt.Errorf("%q is not a field that %s can be selected by", label, r.Name)
			}
			return label, value, nil
		})
		if err != nil {
			return fmt.Errorf("selectable fields of %s: %w", r.GroupResource(), err)
		}
	}
	return nil
}
