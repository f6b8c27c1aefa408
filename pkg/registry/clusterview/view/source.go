package view

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/cache"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/serving"
)

// Source is a Lister of the objects of another resource that the caller may get. That resource is of the group of
// ManagedClusters, and has the name of the view.
type Source struct {
	resource schema.GroupResource
	informer cache.SharedIndexInformer
	scopes   search.Scopes
	show     func(Object) Object
	changes  rbac.Interests
}

// NewSource returns a Source. show returns the object of the view, and must not change its argument. NewSource returns an
// error if the informer has stopped.
func NewSource(resource schema.GroupResource, informer cache.SharedIndexInformer, scopes search.Scopes, show func(Object) Object) (*Source, error) {
	s := &Source{resource: resource, informer: informer, scopes: scopes, show: show}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { s.changes.TouchAll() }, UpdateFunc: func(any, any) { s.changes.TouchAll() }, DeleteFunc: func(any) { s.changes.TouchAll() },
	})
	if err != nil {
		return nil, fmt.Errorf("following the source of %s: %w", resource, err)
	}
	return s, nil
}

// Show implements Lister.
func (s *Source) Show(object Object) Object { return s.show(object) }

// Remember implements Lister. The informer shares its objects.
func (s *Source) Remember(object Object) Object { return object }

// Subscribe implements Lister.
func (s *Source) Subscribe(identity user.Info) (permissions, objects <-chan struct{}, stop func()) {
	permissions, stopPermissions := s.scopes.Subscribe(identity)
	interest, objects := s.changes.Subscribe(nil)
	return permissions, objects, func() {
		stopPermissions()
		s.changes.Remove(interest)
	}
}

// Get implements Lister. A caller who may not get the object of the source receives 403, whether it exists or not.
func (s *Source) Get(ctx context.Context, identity user.Info, name string) (Object, error) {
	may, err := s.permissions(ctx, identity)
	if err != nil {
		return nil, err
	}
	if !may.Includes(name) {
		return nil, apierrors.NewForbidden(s.resource, name, fmt.Errorf("user %q cannot get the object that it shows", identity.GetName()))
	}
	found, exists, err := s.informer.GetStore().GetByKey(name)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	object, ok := found.(Object)
	if !exists || !ok {
		return nil, apierrors.NewNotFound(s.resource, name)
	}
	return object, nil
}

// Permit implements Lister.
func (s *Source) Permit(ctx context.Context, identity user.Info) (visible func() ([]Object, error), err error) {
	may, err := s.permissions(ctx, identity)
	if err != nil {
		return nil, err
	}
	return func() ([]Object, error) {
		var objects []Object
		for _, stored := range s.informer.GetStore().List() {
			if object, ok := stored.(Object); ok && may.Includes(object.GetName()) {
				objects = append(objects, object)
			}
		}
		slices.SortFunc(objects, func(a, b Object) int { return cmp.Compare(a.GetName(), b.GetName()) })
		return objects, nil
	}, nil
}

// permissions returns the names that the caller may get.
func (s *Source) permissions(ctx context.Context, identity user.Info) (visibility.Decision, error) {
	if !s.informer.HasSynced() {
		return visibility.Decision{}, serving.Unavailable(fmt.Sprintf("the %s are not listed yet; try again later", s.resource.Resource))
	}
	scope, err := serving.ScopeOf(ctx, s.scopes, identity)
	if err != nil {
		return visibility.Decision{}, err
	}
	return scope.Gets(s.resource.Resource), nil
}
