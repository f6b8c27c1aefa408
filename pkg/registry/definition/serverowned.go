package definition

import (
	"context"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"
)

// readREST serves what of a stored resource only the server writes. It embeds
// nothing: what verbs there are is known by the methods of a storage.
type readREST struct {
	main *REST
}

var (
	_ rest.Getter                 = &readREST{}
	_ rest.Lister                 = &readREST{}
	_ rest.Watcher                = &readREST{}
	_ rest.Scoper                 = &readREST{}
	_ rest.SingularNameProvider   = &readREST{}
	_ rest.ShortNamesProvider     = &readREST{}
	_ rest.CategoriesProvider     = &readREST{}
	_ rest.StorageVersionProvider = &readREST{}
)

// New implements rest.Storage.
func (r *readREST) New() runtime.Object { return r.main.New() }

// Destroy implements rest.Storage.
func (r *readREST) Destroy() { r.main.Destroy() }

// NewList implements rest.Lister.
func (r *readREST) NewList() runtime.Object { return r.main.NewList() }

// NamespaceScoped implements rest.Scoper.
func (r *readREST) NamespaceScoped() bool { return r.main.NamespaceScoped() }

// GetSingularName implements rest.SingularNameProvider.
func (r *readREST) GetSingularName() string { return r.main.GetSingularName() }

// ShortNames implements rest.ShortNamesProvider.
func (r *readREST) ShortNames() []string { return r.main.ShortNames() }

// Categories implements rest.CategoriesProvider.
func (r *readREST) Categories() []string { return r.main.Categories() }

// StorageVersion implements rest.StorageVersionProvider.
func (r *readREST) StorageVersion() runtime.GroupVersioner { return r.main.StorageVersion() }

// Get implements rest.Getter.
func (r *readREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return r.main.Get(ctx, name, options)
}

// List implements rest.Lister.
func (r *readREST) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	return r.main.List(ctx, options)
}

// Watch implements rest.Watcher.
func (r *readREST) Watch(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	return r.main.Watch(ctx, options)
}

// ConvertToTable implements rest.TableConvertor.
func (r *readREST) ConvertToTable(ctx context.Context, object runtime.Object, tableOptions runtime.Object) (*metav1.Table, error) {
	return r.main.ConvertToTable(ctx, object, tableOptions)
}
