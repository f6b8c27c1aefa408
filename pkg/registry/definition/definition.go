// Package definition defines a row of the server's resource table, and builds the
// storage that serves the row.
//
// A row contains each name once. The store, the status store, the reset fields of
// server-side apply, table output, selectable fields and the names in error messages all
// derive from it.
package definition

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
	"open-cluster-management.io/hub-apiserver/pkg/authz/callers"
	"open-cluster-management.io/hub-apiserver/pkg/quota"
)

// Resource is a row of the table of stored resources.
type Resource struct {
	// Name is the plural name in lower case, as in the URL.
	Name string
	// Singular is the singular name in lower case.
	Singular      string
	Kind          string
	ShortNames    []string
	Categories    []string
	ClusterScoped bool

	// Versions are the group versions that serve the resource from one store,
	// preferred first.
	Versions []schema.GroupVersion
	// Stored is the version in which objects are stored. The default is the first of Versions.
	Stored schema.GroupVersion

	// Strategy is a *Strategy[T] of the internal type T.
	Strategy AnyStrategy

	// Columns are the columns that kubectl get shows between NAME and AGE. They are a
	// Columns[T] of the internal type T.
	Columns ColumnSet

	// Wrap replaces the main storage. If it is nil, the store is served directly.
	Wrap func(*REST) rest.Storage

	// Subresources are the subresources in addition to status, by name.
	Subresources map[string]func(*REST) rest.Storage

	// ServerOwned is true if only the server writes the objects. Clients can get, list and
	// watch them; the server returns 405 for every other verb. There is no status
	// subresource: the server creates objects with their status.
	ServerOwned bool

	// Quota limits the objects of the resource in each namespace, and Limits limits each
	// object. Both are defaults that flags change. A namespaced resource that tenants or
	// clusters may write needs a Quota.
	Quota  quota.Limits
	Limits quota.ObjectLimits
	// Counter enforces the Quota. If it is nil, no quota is enforced.
	Counter *quota.Counter
	// Written limits how fast callers write. If it is nil, writes are not limited.
	Written *callers.Written

	// Watches are the watches of clients. If it is nil, they may continue with any resource version.
	Watches *Watches

	// Stores are functions that receive a store which the server uses outside of requests for
	// the resource. The key is the name of the resource in storage. The key Name stands for the
	// served store. Any other key stands for an additional store of the same type that is not served.
	Stores map[string]func(*REST)
}

// Virtual is a row of the table of resources that are served but not stored.
type Virtual struct {
	// Name is the plural name in lower case, as in the URL.
	Name    string
	Version schema.GroupVersion
	// Storages builds the storages by path: the name, and the name with each subresource.
	Storages func() map[string]rest.Storage
}

// Group returns the API group under which the resource is stored.
func (r *Resource) Group() string {
	return r.Versions[0].Group
}

// StoredVersion returns the version in which objects are stored.
func (r *Resource) StoredVersion() schema.GroupVersion {
	return cmp.Or(r.Stored, r.Versions[0])
}

func (r *Resource) groupKind() schema.GroupKind { return r.Versions[0].WithKind(r.Kind).GroupKind() }

// New returns an empty object of the internal type.
func (r *Resource) New() runtime.Object { return r.newInternal(r.Kind) }

// NewList returns an empty list of the internal type.
func (r *Resource) NewList() runtime.Object { return r.newInternal(r.Kind + "List") }

func (r *Resource) newInternal(kind string) runtime.Object {
	obj, err := scheme.Scheme.New(schema.GroupVersionKind{Group: r.Group(), Version: runtime.APIVersionInternal, Kind: kind})
	utilruntime.Must(err)
	return obj
}

// GroupResource returns the resource as it appears in error messages.
func (r *Resource) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Group(), Resource: r.Name}
}

// HasStatus reports whether the resource has a status subresource.
func (r *Resource) HasStatus() bool {
	return !r.ServerOwned && r.Strategy.hasStatus()
}

// SelectableFields returns the fields that field selectors support.
func (r *Resource) SelectableFields() []string {
	selectable := append([]string{"metadata.name"}, r.Strategy.selectableFields()...)
	if !r.ClusterScoped {
		selectable = append(selectable, "metadata.namespace")
	}
	return selectable
}

// TableColumns returns the columns of table output in order.
func (r *Resource) TableColumns() []metav1.TableColumnDefinition {
	return tableConvertor{columns: r.Columns}.definitions()
}

// Column is one column of table output.
type Column[T runtime.Object] struct {
	// Name is the heading, which kubectl prints in upper case.
	Name        string
	Description string
	// Wide is true for a column that only -o wide shows.
	Wide bool
	// Value returns the cell of an object.
	Value func(T) any
	// Condition replaces Value: the cell is the status of the condition of this type, or Unknown until it is reported.
	Condition string
}

// Columns are the columns of a resource whose internal type is T.
type Columns[T runtime.Object] []Column[T]

// ColumnSet is a Columns of any type.
type ColumnSet interface {
	definitions() (narrow, wide []metav1.TableColumnDefinition)
	cells(obj runtime.Object) (narrow, wide []any)
}
