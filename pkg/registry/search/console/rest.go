// Package console serves the files of the console as a resource, so that RBAC allows or denies it.
package console

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/console"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// REST serves the files of the console.
type REST struct {
	definition.Base
	files console.Files
}

var _ rest.Connecter = REST{}

// NewREST returns the storage of the console.
func NewREST(files console.Files) REST {
	return REST{definition.Base{Object: &searchv1alpha1.Console{}, Singular: console.Resource}, files}
}

// ConnectMethods implements rest.Connecter. RBAC knows both as the verb get.
func (REST) ConnectMethods() []string { return []string{http.MethodGet, http.MethodHead} }

// NewConnectOptions implements rest.Connecter.
func (REST) NewConnectOptions() (runtime.Object, bool, string) { return nil, false, "" }

// Connect implements rest.Connecter.
func (r REST) Connect(_ context.Context, name string, _ runtime.Object, _ rest.Responder) (http.Handler, error) {
	file, found := r.files[name]
	if !found {
		return nil, apierrors.NewNotFound(searchv1alpha1.Resource(console.Resource), name)
	}
	return file, nil
}
