package definition

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
)

// REST serves a stored resource.
type REST struct {
	*genericregistry.Store
	shortNames, categories []string
	// server stores an object as a change of Rewrite returns it.
	server *genericregistry.Store
	// importing prepares an object that Import stores.
	importing importStrategy
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

// Update implements rest.Updater. It also serves patches and server-side apply.
func (r *REST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, admitCreate rest.ValidateObjectFunc, admitUpdate rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.countUpdate(r.Store, ctx, name, applied{objInfo}, admitCreate, admitUpdate, forceAllowCreate, options)
}

// Rewrite updates a stored object to the result of change. It is for a subresource that
// determines itself which fields may change. change receives the object of the request and the
// stored one; if it returns the stored object, nothing is written. It may run several times,
// and it has to check the UID and the resource version if they matter.
func (r *REST) Rewrite(ctx context.Context, name string, requested rest.UpdatedObjectInfo, change rest.TransformFunc, admit rest.ValidateObjectUpdateFunc, options *metav1.UpdateOptions) (runtime.Object, error) {
	updated, _, err := r.server.Update(ctx, name, rest.WrapUpdatedObjectInfo(unconditional{requested}, change), rest.ValidateAllObjectFunc, admit, false, options)
	return updated, err
}

// Context returns a context in which the store serves a request that the server itself makes,
// regardless of the request that ctx belongs to. The namespace of cluster-scoped resources is
// empty.
func (r *REST) Context(ctx context.Context, verb, namespace string) context.Context {
	return r.resource.requestContext(ctx, r.Store, verb, namespace)
}

func (r *Resource) requestContext(ctx context.Context, store *genericregistry.Store, verb, namespace string) context.Context {
	ctx = request.WithNamespace(ctx, namespace)
	return request.WithRequestInfo(ctx, &request.RequestInfo{
		IsResourceRequest: true, Verb: verb, Namespace: namespace,
		APIGroup: r.Group(), APIVersion: r.Versions[0].Version, Resource: store.DefaultQualifiedResource.Resource,
	})
}

// applied is a rest.UpdatedObjectInfo that returns status 400 for a server-side apply that does not match the schema, such as
// two entries with the same key. The library returns an error without a status, which is logged as an internal error.
type applied struct {
	rest.UpdatedObjectInfo
}

// UpdatedObject implements rest.UpdatedObjectInfo.
func (a applied) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	obj, err := a.UpdatedObjectInfo.UpdatedObject(ctx, old)
	if err != nil && strings.HasPrefix(err.Error(), "failed to create typed patch object") {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return obj, err
}

// unconditional is a rest.UpdatedObjectInfo without preconditions.
type unconditional struct {
	rest.UpdatedObjectInfo
}

// Preconditions implements rest.UpdatedObjectInfo.
func (unconditional) Preconditions() *metav1.Preconditions { return nil }

// readREST serves a resource that clients can only read. The methods of a storage determine its
// verbs, so it embeds an interface instead of *REST.
type readREST struct {
	readStorage
}

type readStorage interface {
	rest.Storage
	rest.Getter
	rest.Lister
	rest.Watcher
	rest.Scoper
	rest.SingularNameProvider
	rest.ShortNamesProvider
	rest.CategoriesProvider
	rest.StorageVersionProvider
}

// statusREST serves the status subresource of a stored resource.
type statusREST struct {
	statusStorage
	store *genericregistry.Store
	counted
}

type statusStorage interface {
	New() runtime.Object
	rest.Getter
	rest.ResetFieldsStrategy
	rest.TableConvertor
}

var (
	_ rest.Storage = &statusREST{}
	_ rest.Patcher = &statusREST{}
)

// Destroy implements rest.Storage. The main storage destroys the shared store.
func (s *statusREST) Destroy() {}

// Update implements rest.Updater. It never creates an object.
func (s *statusREST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc, updateValidation rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return s.countUpdate(s.store, ctx, name, objInfo, createValidation, updateValidation, false, options)
}

// Storages builds the storages of each version by path: the name of the resource,
// name/status and name/subresource. All versions share one store.
func (r *Resource) Storages(scheme *runtime.Scheme, codecs serializer.CodecFactory, getter generic.RESTOptionsGetter) (map[schema.GroupVersion]map[string]rest.Storage, error) {
	if err := r.registerSelectableFields(scheme); err != nil {
		return nil, err
	}
	bound := r.Strategy.bind(r, scheme)
	store, err := r.store(bound, r.GroupResource(), storedAs{getter, codecs, r.StoredVersion()})
	if err != nil {
		return nil, err
	}
	r.serveCounter(store)
	for _, name := range slices.Sorted(maps.Keys(r.Stores)) {
		used := store
		if name != r.Name {
			used, err = r.store(bound, schema.GroupResource{Group: r.Group(), Resource: name}, uncached{storedAs{getter, codecs, r.StoredVersion()}})
			if err != nil {
				return nil, err
			}
			destroy := store.DestroyFunc
			store.DestroyFunc = func() {
				used.Destroy()
				destroy()
			}
		}
		internal := r.newREST(used, bound)
		if used != store {
			internal.counter = nil
		}
		r.Stores[name](internal)
	}

	served := r.newREST(store, bound)
	served.shortNames, served.categories = r.ShortNames, r.Categories
	main := r.paths(served, bound)
	// If a second group had the short names and categories too, kubectl would find them
	// ambiguous and list every object twice.
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
	return &REST{Store: store, server: server, importing: bound.importing, counted: counted{counter: r.Counter, parts: bound.parts, resource: r}}
}

// paths returns the storages of the resource and its subresources by path.
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
		out[r.Name+"/status"] = &statusREST{statusStorage: &statusStore, store: &statusStore, counted: main.counted}
	}
	for name, subresource := range r.Subresources {
		out[r.Name+"/"+name] = subresource(main)
	}
	return out
}

// storedAs is a getter of options that store objects in one version. One codec for all
// resources is not possible: kinds of one group may be stored in different versions.
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

// uncached is a getter of options without a watch cache.
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
				return "", "", fmt.Errorf("field label not supported: %q; %s supports %s", label, r.Name, strings.Join(selectable, ", "))
			}
			return label, value, nil
		})
		if err != nil {
			return fmt.Errorf("selectable fields of %s: %w", r.GroupResource(), err)
		}
	}
	return nil
}
