// Package view serves views: for each object of another resource that the caller may get, a read-only object of the same
// name. It contains what the resources of the group clusterview.open-cluster-management.io have in common.
//
//	informer + permissions of the caller → visible objects → List, Get, Watch
package view

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/tools/cache"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/pkg/search/serving"
)

// Object is an object of a view or of its source.
type Object interface {
	runtime.Object
	metav1.Object
}

// Scopes returns the permissions of callers, and reports their changes. A visibility.Compiler implements it.
type Scopes interface {
	Scope(ctx context.Context, identity user.Info) (visibility.Scope, error)
	Subscribe(identity user.Info) (changed <-chan struct{}, stop func())
}

// Options describe a view.
type Options struct {
	// Resource and Singular are the names of the view.
	Resource   schema.GroupResource
	Singular   string
	ShortNames []string
	New        func() Object
	NewList    func() runtime.Object
	Columns    definition.ColumnSet
	// Source contains the objects of which the view shows a part. Its resource is of the group of ManagedClusters, and
	// has the name of the view.
	Source cache.SharedIndexInformer
	// Show returns the object of the view. It must not change the object of the source.
	Show   func(source Object) Object
	Scopes Scopes
}

// REST serves a view.
type REST struct {
	rest.TableConvertor
	options  Options
	versions versions
	changes  changes
}

var (
	_ rest.Getter               = &REST{}
	_ rest.Lister               = &REST{}
	_ rest.Watcher              = &REST{}
	_ rest.Scoper               = &REST{}
	_ rest.SingularNameProvider = &REST{}
	_ rest.ShortNamesProvider   = &REST{}
)

// NewREST returns the storage of a view. It returns an error if the source has stopped.
func NewREST(options Options) (*REST, error) {
	r := &REST{TableConvertor: definition.NewTableConvertor(options.Columns), options: options}
	r.versions.init()
	_, err := options.Source.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { r.changes.notify() }, UpdateFunc: func(any, any) { r.changes.notify() }, DeleteFunc: func(any) { r.changes.notify() },
	})
	if err != nil {
		return nil, fmt.Errorf("following the source of %s: %w", options.Resource, err)
	}
	return r, nil
}

// New implements rest.Storage.
func (r *REST) New() runtime.Object { return r.options.New() }

// NewList implements rest.Lister.
func (r *REST) NewList() runtime.Object { return r.options.NewList() }

// Destroy implements rest.Storage.
func (r *REST) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (r *REST) NamespaceScoped() bool { return false }

// GetSingularName implements rest.SingularNameProvider.
func (r *REST) GetSingularName() string { return r.options.Singular }

// ShortNames implements rest.ShortNamesProvider.
func (r *REST) ShortNames() []string { return r.options.ShortNames }

// Get implements rest.Getter. A caller who may not get the object of the source receives 403, whether it exists or not.
func (r *REST) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	may, err := r.permissions(ctx)
	if err != nil {
		return nil, err
	}
	if !may.Includes(name) {
		return nil, apierrors.NewForbidden(r.options.Resource, name, errors.New("you may not get the object that it shows"))
	}
	found, exists, err := r.options.Source.GetStore().GetByKey(name)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	source, ok := found.(Object)
	if !exists || !ok {
		return nil, apierrors.NewNotFound(r.options.Resource, name)
	}
	return r.options.Show(source), nil
}

// List implements rest.Lister. It returns all objects at once.
func (r *REST) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	objects, err := r.visible(ctx, newSelection(options))
	if err != nil {
		return nil, err
	}
	items := make([]runtime.Object, 0, len(objects))
	for _, object := range objects {
		items = append(items, r.options.Show(object))
	}
	list := r.options.NewList()
	if err := meta.SetList(list, items); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	accessor.SetResourceVersion(r.versions.of(objects))
	return list, nil
}

// permissions returns the names that the caller may get.
func (r *REST) permissions(ctx context.Context) (visibility.Decision, error) {
	if !r.options.Source.HasSynced() {
		return visibility.Decision{}, serving.Unavailable(fmt.Sprintf("the %s are not listed yet; try again later", r.options.Resource.Resource))
	}
	scope, err := serving.Scope(ctx, r.options.Scopes)
	if err != nil {
		return visibility.Decision{}, err
	}
	return scope.Gets(r.options.Resource.Resource), nil
}

// visible returns the selected objects of the source that the caller may get, by name.
func (r *REST) visible(ctx context.Context, selected selection) ([]Object, error) {
	may, err := r.permissions(ctx)
	if err != nil {
		return nil, err
	}
	var objects []Object
	for _, stored := range r.options.Source.GetStore().List() {
		if object, ok := stored.(Object); ok && may.Includes(object.GetName()) && selected.includes(object) {
			objects = append(objects, object)
		}
	}
	slices.SortFunc(objects, func(a, b Object) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return objects, nil
}

// caller returns the user of a request.
func caller(ctx context.Context) (user.Info, error) {
	identity, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewUnauthorized("the request has no user")
	}
	return identity, nil
}

// selection contains the selectors of a request.
type selection struct {
	byLabel labels.Selector
	byField fields.Selector
}

func newSelection(options *metainternalversion.ListOptions) selection {
	s := selection{byLabel: labels.Everything(), byField: fields.Everything()}
	if options != nil && options.LabelSelector != nil {
		s.byLabel = options.LabelSelector
	}
	if options != nil && options.FieldSelector != nil {
		s.byField = options.FieldSelector
	}
	return s
}

func (s selection) includes(object Object) bool {
	return s.byLabel.Matches(labels.Set(object.GetLabels())) && s.byField.Matches(fields.Set{metav1.ObjectNameField: object.GetName()})
}
