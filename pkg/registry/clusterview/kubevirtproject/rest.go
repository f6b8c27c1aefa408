// Package kubevirtproject serves the namespaces of managed clusters in which the caller has a role of KubeVirt.
package kubevirtproject

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/google/uuid"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	clusterviewv1 "open-cluster-management.io/hub-apiserver/pkg/apis/clusterview/v1"
	"open-cluster-management.io/hub-apiserver/pkg/authz"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/registry/clusterview/view"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// roles are the roles of KubeVirt.
var roles = []string{"kubevirt.io:admin", "kubevirt.io:edit", "kubevirt.io:view"}

// REST serves kubevirtprojects.
type REST struct {
	definition.Base
	rest.TableConvertor
	bound *view.Bound
}

var _ rest.Lister = &REST{}

// NewREST returns the storage.
func NewREST(bound *view.Bound) *REST {
	base := definition.Base{Object: &clusterviewv1.Project{}, Objects: &clusterviewv1.ProjectList{}, Singular: "kubevirtproject"}
	return &REST{Base: base, bound: bound, TableConvertor: definition.NewBareTableConvertor(definition.Columns[*clusterviewv1.Project]{
		{Name: "Cluster", Description: "Name of the managed cluster.", Value: func(p *clusterviewv1.Project) any {
			return p.Labels[clusterviewv1.ProjectClusterLabel]
		}},
		{Name: "Project", Description: "Name of the namespace, or * for all namespaces.", Value: func(p *clusterviewv1.Project) any {
			if name := p.Labels[clusterviewv1.ProjectNameLabel]; name != clusterviewv1.AllProjects {
				return name
			}
			return "*"
		}},
	})}
}

// project is a namespace of a cluster.
type project struct{ cluster, name string }

// List implements rest.Lister. If the caller has a role in a whole cluster, the list contains that and no namespace of it.
func (r *REST) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	identity, err := authz.Caller(ctx)
	if err != nil {
		return nil, err
	}
	clusters, err := r.bound.Sorted()
	if err != nil {
		return nil, err
	}
	found := map[project]struct{}{}
	for _, places := range r.bound.Places(identity, clusters, func(role rbac.Key) bool { return slices.Contains(roles, role.Name) }) {
		for i := range places {
			if places[i].Namespaces == nil {
				found[project{places[i].Cluster, clusterviewv1.AllProjects}] = struct{}{}
			}
			for _, namespace := range places[i].Namespaces {
				found[project{places[i].Cluster, namespace}] = struct{}{}
			}
		}
	}
	list, selected := &clusterviewv1.ProjectList{Items: []clusterviewv1.Project{}}, view.NewSelection(options)
	for _, p := range slices.SortedFunc(maps.Keys(found), func(a, b project) int {
		return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.name, b.name))
	}) {
		if _, all := found[project{p.cluster, clusterviewv1.AllProjects}]; all && p.name != clusterviewv1.AllProjects {
			continue
		}
		item := clusterviewv1.Project{ObjectMeta: metav1.ObjectMeta{
			// Upstream consoles find a project by this name.
			Name:   uuid.NewSHA1(uuid.NameSpaceOID, []byte(p.cluster+"-"+p.name)).String(),
			Labels: map[string]string{clusterviewv1.ProjectClusterLabel: p.cluster, clusterviewv1.ProjectNameLabel: p.name},
		}}
		if selected.Includes(&item) {
			list.Items = append(list.Items, item)
		}
	}
	return list, nil
}
