// Package view serves views: read-only objects that depend on the permissions of the caller. It contains what the resources
// of the group clusterview.open-cluster-management.io have in common.
//
//	Lister: objects that the caller sees → REST: List, Get, Watch
package view

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/registry/rest"

	"open-cluster-management.io/hub-apiserver/pkg/authz"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// Object is an object of a view or of its Lister.
type Object = definition.Object

// Lister finds the objects that a caller sees. Its errors are API errors.
type Lister interface {
	// Permit determines the permissions of a caller, for which it may send requests. The returned function computes the
	// objects, and returns them in a new slice, by name. Callers must not change the objects.
	Permit(ctx context.Context, identity user.Info) (visible func() ([]Object, error), err error)
	// Get returns one of them.
	Get(ctx context.Context, identity user.Info, name string) (Object, error)
	// Show returns an object as clients receive it.
	Show(object Object) Object
	// Remember returns what a watch keeps of an object that its client knows: all that a DELETED event shows.
	Remember(object Object) Object
	// Subscribe returns channels that receive a value when the permissions of the caller or the objects may have changed.
	// The caller must call stop.
	Subscribe(identity user.Info) (permissions, objects <-chan struct{}, stop func())
}

// Options describe a view.
type Options struct {
	definition.Base
	// Table converts the objects to tables.
	Table  rest.TableConvertor
	Lister Lister
	// Period is the minimum time between two passes of a watch, so that many changes cost little. By default, it is 100 ms.
	Period time.Duration
}

// REST serves a view.
type REST struct {
	definition.Base
	rest.TableConvertor
	options Options
	watches atomic.Int32
	// turn serializes the passes of all watches after their start, so that they use one core at most.
	turn chan struct{}
}

var (
	_ rest.Getter  = &REST{}
	_ rest.Lister  = &REST{}
	_ rest.Watcher = &REST{}
)

// NewREST returns the storage of a view.
func NewREST(options Options) *REST {
	options.Period = cmp.Or(options.Period, defaultPeriod)
	return &REST{Base: options.Base, TableConvertor: options.Table, options: options, turn: make(chan struct{}, 1)}
}

// Get implements rest.Getter.
func (r *REST) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	identity, err := authz.Caller(ctx)
	if err != nil {
		return nil, err
	}
	found, err := r.options.Lister.Get(ctx, identity, name)
	if err != nil {
		return nil, err
	}
	return r.options.Lister.Show(found), nil
}

// List implements rest.Lister. It returns all objects at once.
func (r *REST) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	identity, err := authz.Caller(ctx)
	if err != nil {
		return nil, err
	}
	visible, err := r.options.Lister.Permit(ctx, identity)
	if err != nil {
		return nil, err
	}
	objects, err := NewSelection(options).of(visible)
	if err != nil {
		return nil, err
	}
	items := make([]runtime.Object, 0, len(objects))
	for _, object := range objects {
		items = append(items, r.options.Lister.Show(object))
	}
	list := r.NewList()
	if err := meta.SetList(list, items); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	accessor.SetResourceVersion(versionOf(objects))
	return list, nil
}

// Selection contains the selectors of a request.
type Selection struct {
	byLabel labels.Selector
	byField fields.Selector
}

// NewSelection returns the selectors of a list or watch.
func NewSelection(options *metainternalversion.ListOptions) Selection {
	s := Selection{byLabel: labels.Everything(), byField: fields.Everything()}
	if options != nil && options.LabelSelector != nil {
		s.byLabel = options.LabelSelector
	}
	if options != nil && options.FieldSelector != nil {
		s.byField = options.FieldSelector
	}
	return s
}

// Includes reports whether an object is selected.
func (s Selection) Includes(object metav1.Object) bool {
	return s.byLabel.Matches(labels.Set(object.GetLabels())) && s.byField.Matches(fields.Set{metav1.ObjectNameField: object.GetName()})
}

// of returns the selected objects.
func (s Selection) of(visible func() ([]Object, error)) ([]Object, error) {
	objects, err := visible()
	return slices.DeleteFunc(objects, func(o Object) bool { return !s.Includes(o) }), err
}
