package multiclusterroleassignment

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// renderedREST serves multiclusterroleassignments/rendered: the stored object with the changes that the controller
// would make now. To preview a change, write the object with dryRun.
type renderedREST struct {
	definition.Base
	store *definition.REST
	Options
}

var _ rest.Getter = &renderedREST{}

// Get implements rest.Getter.
func (r *renderedREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	obj, err := r.store.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	pass, end, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	assignment := obj.(*rbac.MulticlusterRoleAssignment).DeepCopy()
	return assignment, r.preview(ctx, assignment, pass)
}
