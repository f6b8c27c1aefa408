// Package imports serves imports, which move objects with their identity into the stores of the server.
package imports

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"
	"k8s.io/apiserver/pkg/warning"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	migrationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/migration/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/pkg/rehoming"
)

// Forwarded reports whether the hub forwards requests for a group and version to an API server.
type Forwarded func(ctx context.Context, version schema.GroupVersion) (bool, error)

// Idle reports whether a migration prevents that the controllers of the server run.
type Idle func(ctx context.Context) (bool, error)

// Stores are the stores into which objects are imported. They are empty until the rows are served.
type Stores struct {
	forwarded Forwarded
	idle      Idle
	rows      map[schema.GroupKind]*row
	decoder   runtime.Decoder
}

type row struct {
	*definition.Resource
	store definition.Handle[*definition.REST]
}

// NewStores returns Stores without rows. The server refuses to import versions that are forwarded to it, and to import
// while its controllers may run.
func NewStores(forwarded Forwarded, idle Idle) *Stores {
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict)
	return &Stores{forwarded: forwarded, idle: idle, rows: map[schema.GroupKind]*row{}, decoder: strict.UniversalDecoder()}
}

// Add makes objects of a row importable, once the row is served.
func (s *Stores) Add(resource *definition.Resource) {
	added := &row{Resource: resource}
	s.rows[resource.Versions[0].WithKind(resource.Kind).GroupKind()] = added
	stores := map[string]func(*definition.REST){}
	for name, receive := range resource.Stores {
		stores[name] = receive
	}
	others := stores[resource.Name]
	stores[resource.Name] = func(store *definition.REST) {
		added.store.Set(store)
		if others != nil {
			others(store)
		}
	}
	resource.Stores = stores
}

// REST serves imports.
type REST = definition.Question[*migrationv1alpha1.Import]

// NewREST returns the storage of imports.
func NewREST(stores *Stores) *REST {
	return &REST{Base: definition.Base{Object: &migrationv1alpha1.Import{}, Singular: "import"}, Write: stores.write}
}

// write imports the object, or discards the objects of the kind.
func (s *Stores) write(ctx context.Context, request *migrationv1alpha1.Import, options *metav1.CreateOptions) (runtime.Object, error) {
	path := field.NewPath("spec")
	object, kind, epoch := request.Spec.Object, request.Spec.Discard, request.Spec.Epoch
	given := 0
	for _, set := range []bool{object != nil, kind != nil, epoch != nil} {
		if set {
			given++
		}
	}
	if given != 1 {
		return nil, invalid(request, field.Required(path, "exactly one of object, discard and epoch is required"))
	}
	if object == nil && request.Spec.Adopt {
		return nil, invalid(request, field.Forbidden(path.Child("adopt"), "it applies to an object"))
	}
	out := request.DeepCopy()
	out.Status = migrationv1alpha1.ImportStatus{}
	dryRun := dryrun.IsDryRun(options.DryRun)
	if kind != nil {
		_, store, _, err := s.open(ctx, request, schema.GroupVersionKind(*kind), path.Child("discard"), dryRun)
		if err != nil {
			return nil, err
		}
		out.Status.Discarded, err = store.Discard(ctx, dryRun)
		return out, err
	}
	if epoch != nil {
		return out, s.raise(ctx, request, dryRun)
	}
	stored, err := s.importObject(ctx, request, options, dryRun)
	if err != nil {
		return nil, err
	}
	out.Spec.Object = nil
	out.Status.Object = &runtime.RawExtension{Raw: stored}
	return out, nil
}

func (s *Stores) importObject(ctx context.Context, request *migrationv1alpha1.Import, options *metav1.CreateOptions, dryRun bool) ([]byte, error) {
	path := field.NewPath("spec", "object")
	decoded, gvk, err := s.decoder.Decode(request.Spec.Object.Raw, nil, nil)
	if unknown, strict := runtime.AsStrictDecodingError(err); strict && decoded != nil {
		if options.FieldValidation == metav1.FieldValidationStrict {
			return nil, invalid(request, field.Invalid(path, nameOf(decoded), unknown.Error()))
		}
		if options.FieldValidation != metav1.FieldValidationIgnore {
			warning.AddWarning(ctx, "", unknown.Error())
		}
	} else if err != nil {
		return nil, invalid(request, field.Invalid(path, field.OmitValueType{}, err.Error()))
	}
	row, store, ctx, err := s.open(ctx, request, *gvk, path, dryRun)
	if err != nil {
		return nil, err
	}
	if row.ServerOwned && !request.Spec.Adopt {
		return nil, invalid(request, field.Forbidden(path, "only the server creates objects of this kind"))
	}
	stored, err := store.Import(ctx, decoded, definition.ImportOptions{DryRun: dryRun, Adopt: request.Spec.Adopt})
	if err != nil {
		return nil, err
	}
	versioned, err := scheme.Scheme.ConvertToVersion(stored, gvk.GroupVersion())
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	versioned.GetObjectKind().SetGroupVersionKind(*gvk)
	encoded, err := json.Marshal(versioned)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return encoded, nil
}

// raise raises the epoch of a ManagedCluster.
func (s *Stores) raise(ctx context.Context, request *migrationv1alpha1.Import, dryRun bool) error {
	path := field.NewPath("spec", "epoch")
	name := request.Spec.Epoch.ManagedCluster
	if name == "" {
		return invalid(request, field.Required(path.Child("managedCluster"), ""))
	}
	wanted, err := rehoming.ParseEpoch(request.Spec.Epoch.Epoch)
	if err != nil {
		return invalid(request, field.Invalid(path.Child("epoch"), request.Spec.Epoch.Epoch, err.Error()))
	}
	_, store, ctx, err := s.open(ctx, request, clusterv1.SchemeGroupVersion.WithKind("ManagedCluster"), path, dryRun)
	if err != nil {
		return err
	}
	options := &metav1.UpdateOptions{}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	_, err = store.Rewrite(ctx, name, rest.DefaultUpdatedObjectInfo(nil), func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
		mc := old.(*cluster.ManagedCluster).DeepCopy()
		if stored, err := rehoming.ParseEpoch(mc.Annotations[rehoming.EpochAnnotation]); err == nil && stored != wanted && !wanted.Follows(stored) {
			return nil, apierrors.NewConflict(clusterv1.Resource("managedclusters"), name, fmt.Errorf("its epoch is %q, and an epoch only rises", stored))
		}
		metav1.SetMetaDataAnnotation(&mc.ObjectMeta, rehoming.EpochAnnotation, wanted.String())
		return mc, nil
	}, rest.ValidateAllObjectUpdateFunc, options)
	return err
}

// open returns the row and the store of a kind, and a context for it, or an error if it must not be imported now. To
// check an object that is adopted, the controllers need not be stopped.
func (s *Stores) open(ctx context.Context, request *migrationv1alpha1.Import, kind schema.GroupVersionKind, path *field.Path, dryRun bool) (*row, *definition.REST, context.Context, error) {
	row, known := s.rows[kind.GroupKind()]
	if !known {
		return nil, nil, nil, invalid(request, field.Invalid(path, kind.GroupKind().String(), "the server does not store this kind"))
	}
	ctx, store, err := row.store.Open(ctx, kind.Kind, "create", metav1.NamespaceAll)
	if err != nil {
		return nil, nil, nil, err
	}
	adopts := request.Spec.Adopt || request.Spec.Epoch != nil
	if adopts && dryRun {
		return row, store, ctx, nil
	}
	for _, version := range row.Versions {
		if adopts {
			break
		}
		forwarded, err := s.forwarded(ctx, version)
		if err != nil {
			return nil, nil, nil, apierrors.NewInternalError(fmt.Errorf("reading the APIService of %s: %w", version, err))
		}
		if forwarded {
			return nil, nil, nil, apierrors.NewConflict(migrationv1alpha1.Resource("imports"), request.Name,
				fmt.Errorf("the hub forwards %s to an API server: objects can only be imported before that", version))
		}
	}
	switch idle, err := s.idle(ctx); {
	case err != nil:
		return nil, nil, nil, apierrors.NewInternalError(fmt.Errorf("reading the Lease of the controllers: %w", err))
	case !idle:
		return nil, nil, nil, apierrors.NewConflict(migrationv1alpha1.Resource("imports"), request.Name,
			fmt.Errorf("the controllers of the server may run: objects can only be imported while %s holds their Lease", migrationv1alpha1.User))
	}
	return row, store, ctx, nil
}

func nameOf(obj runtime.Object) string {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return accessor.GetName()
}

func invalid(request *migrationv1alpha1.Import, errs ...*field.Error) error {
	return apierrors.NewInvalid(migrationv1alpha1.SchemeGroupVersion.WithKind("Import").GroupKind(), request.Name, errs)
}
