// Package definition says what a served resource is: a row of the server's one
// table, and how such a row becomes a store.
//
// A row names everything once. The store, the status store, the reset fields of
// server-side apply, table output, selectable fields and error names all derive
// from it.
package definition

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"

	"open-cluster-management.io/hub-apiserver/pkg/authz/callers"
	"open-cluster-management.io/hub-apiserver/pkg/quota"
)

// Resource is a row of the table of everything served.
type Resource struct {
	// Name is the resource in plural and lower case, as in its URL.
	Name string
	// Singular is the resource in singular and lower case.
	Singular string
	// Kind is the kind of the objects.
	Kind string
	// ShortNames and Categories are further names that kubectl understands.
	ShortNames []string
	Categories []string
	// ClusterScoped is true for resources outside of namespaces.
	ClusterScoped bool

	// Versions are the group versions that serve the resource from one store,
	// preferred first.
	Versions []schema.GroupVersion
	// Stored is the version in which objects are stored; empty for the first one.
	Stored schema.GroupVersion

	// New and NewList return the internal types.
	New     func() runtime.Object
	NewList func() runtime.Object

	// Strategy holds the behaviour of the resource; it is a *Strategy[T] of the
	// internal type.
	Strategy Behaviour

	// Columns are what kubectl get shows between NAME and AGE; they are Columns
	// of the internal type.
	Columns ColumnSet

	// Wrap replaces the main storage by one that does more around the store; nil
	// serves the store as it is.
	Wrap func(*REST) rest.Storage

	// Subresources are served beside status, by name.
	Subresources map[string]func(*REST) rest.Storage

	// ServerOwned is true for a resource whose objects the server alone writes. They
	// can be read, listed and watched; every other verb is answered with 405, and
	// their status is no subresource. What the server creates keeps its status.
	ServerOwned bool

	// Quota bounds what each namespace may hold of the resource, and Limits bounds each of
	// its objects. Both are defaults, which flags change. A resource in namespaces that
	// tenants or clusters may write needs a Quota.
	Quota  quota.Limits
	Limits quota.ObjectLimits
	// Counter enforces the Quota; nil enforces none.
	Counter *quota.Counter
	// Written limits how fast callers write; nil limits nobody.
	Written *callers.Written

	// Stores hands stores out to whoever reads and writes them beside requests for
	// them, by the name of their resource in storage: that of the resource itself by
	// its Name, and by any other name a further one for objects of its type, which
	// nothing serves.
	Stores map[string]func(*REST)
}

// Virtual is a row for what is served without being stored.
type Virtual struct {
	// Name is the resource in plural and lower case, as in its URL.
	Name string
	// Version is the group version that serves it.
	Version schema.GroupVersion
	// Storages builds what serves it, by path: its name, and its name with a subresource.
	Storages func() map[string]rest.Storage
}

// Group is the API group that the resource is stored under.
func (r *Resource) Group() string {
	return r.Versions[0].Group
}

func (r *Resource) storedVersion() schema.GroupVersion {
	if r.Stored.Empty() {
		return r.Versions[0]
	}
	return r.Stored
}

// GroupResource is the resource with the group that it is stored under, as it
// appears in error messages.
func (r *Resource) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Group(), Resource: r.Name}
}

// HasStatus tells whether the resource has a status subresource.
func (r *Resource) HasStatus() bool {
	return !r.ServerOwned && r.Strategy.hasStatus()
}

// SelectableFields are the fields that field selectors may name.
func (r *Resource) SelectableFields() []string {
	selectable := append([]string{"metadata.name"}, r.Strategy.selectableFields()...)
	if !r.ClusterScoped {
		selectable = append(selectable, "metadata.namespace")
	}
	return selectable
}

// TableColumns are the columns of table output, in their order.
func (r *Resource) TableColumns() []metav1.TableColumnDefinition {
	return tableConvertor{columns: r.Columns}.definitions()
}

// Column is one column of table output.
type Column[T runtime.Object] struct {
	// Name is the heading; kubectl prints it in upper case.
	Name string
	// Description is what the column means.
	Description string
	// Wide columns appear with -o wide only.
	Wide bool
	// Value is the cell of an object.
	Value func(T) any
}

// Columns are the columns of a resource whose internal type is T.
type Columns[T runtime.Object] []Column[T]

// ColumnSet is a Columns of any type.
type ColumnSet interface {
	definitions(wide bool) []metav1.TableColumnDefinition
	cells(obj runtime.Object, wide bool) []any
}
