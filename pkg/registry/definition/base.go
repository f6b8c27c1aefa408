package definition

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Base has the methods that describe a resource that is not stored, or a subresource. A subresource needs only Object.
type Base struct {
	// Object and Objects are an empty object and an empty list.
	Object, Objects runtime.Object
	Namespaced      bool
	// Singular and Short are the singular name and the short names.
	Singular string
	Short    []string
}

var _ interface {
	rest.Storage
	rest.Scoper
	rest.SingularNameProvider
	rest.ShortNamesProvider
} = Base{}

func (b Base) New() runtime.Object     { return b.Object.DeepCopyObject() }
func (b Base) NewList() runtime.Object { return b.Objects.DeepCopyObject() }
func (b Base) Destroy()                {}
func (b Base) NamespaceScoped() bool   { return b.Namespaced }
func (b Base) GetSingularName() string { return b.Singular }
func (b Base) ShortNames() []string    { return b.Short }
