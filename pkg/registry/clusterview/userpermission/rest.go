// Package userpermission serves UserPermissions: the clusters on which ClusterRoles are bound to the caller.
package userpermission

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/cache"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	clusterviewv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/clusterview/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/registry/clusterview/view"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/serving"
)

const (
	// discoverable is the value of the label of ClusterRoles that UserPermissions show.
	discoverable = "true"
	// period is the minimum time between two passes of a watch.
	period = time.Second
	// shownBindings is the number of bindings in a row of a table.
	shownBindings = 10
)

// administer is the permission that makes a user who may view a cluster its administrator.
var administer = access.Attributes{Verb: "create", Group: "action.open-cluster-management.io", Resource: "managedclusteractions"}

// Options are the dependencies of UserPermissions.
type Options struct {
	Bound *view.Bound
	// ClusterRoles and Clusters are informers of the ClusterRoles of the hub, with their label, and of ManagedClusters.
	ClusterRoles, Clusters cache.SharedIndexInformer
	// Scopes decide which clusters a caller may view.
	Scopes search.Scopes
}

// NewREST returns the storage of UserPermissions. It returns an error if an informer has stopped.
func NewREST(o Options) (*view.REST, error) {
	changes := &rbac.Interests{}
	o.Bound.Index.Follow(func(_ string, _ bool, concerned []rbac.Subject) { changes.Touch(concerned) })
	touch := func(any) { changes.TouchAll() }
	touched := cache.ResourceEventHandlerFuncs{AddFunc: touch, UpdateFunc: func(_, after any) { touch(after) }, DeleteFunc: touch}
	if _, err := o.ClusterRoles.AddEventHandler(cache.FilteringResourceEventHandler{FilterFunc: isShown, Handler: touched}); err != nil {
		return nil, fmt.Errorf("following ClusterRoles: %w", err)
	}
	if _, err := o.Clusters.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: touch, DeleteFunc: touch}); err != nil {
		return nil, fmt.Errorf("following ManagedClusters: %w", err)
	}
	return view.NewREST(view.Options{
		Base: definition.Base{
			Object: &clusterviewv1alpha1.UserPermission{}, Objects: &clusterviewv1alpha1.UserPermissionList{}, Singular: "userpermission",
		},
		Lister: &lister{o, changes}, Period: period,
		Table: definition.NewBareTableConvertor(definition.Columns[*clusterviewv1alpha1.UserPermission]{
			{Name: "Name", Description: "Name of the ClusterRole.", Value: func(p *clusterviewv1alpha1.UserPermission) any { return p.Name }},
			{Name: "Bindings", Description: "Clusters, with the namespaces in which the role is bound, or * for all.", Value: summary},
		}),
	}), nil
}

func summary(p *clusterviewv1alpha1.UserPermission) any {
	bindings := p.Status.Bindings
	var out []string
	for i := range bindings[:min(len(bindings), shownBindings)] {
		out = append(out, bindings[i].Cluster+"("+strings.Join(bindings[i].Namespaces, ",")+")")
	}
	if more := len(bindings) - shownBindings; more > 0 {
		out = append(out, fmt.Sprintf("+ %d more", more))
	}
	return strings.Join(out, " ")
}

// isShown reports whether UserPermissions show a ClusterRole, or may have shown one whose deletion an informer has missed.
func isShown(obj any) bool {
	role, ok := obj.(*rbacv1.ClusterRole)
	return !ok || role.Labels[clusterviewv1alpha1.DiscoverableLabel] == discoverable
}

// lister implements view.Lister.
type lister struct {
	Options
	// changes are those of permissions, ClusterRoles and clusters.
	changes *rbac.Interests
}

// Show implements view.Lister.
func (l *lister) Show(object view.Object) view.Object { return object }

// Remember implements view.Lister. It drops the bindings, of which every watch would keep its own copy.
func (l *lister) Remember(object view.Object) view.Object {
	return &clusterviewv1alpha1.UserPermission{ObjectMeta: metav1.ObjectMeta{Name: object.GetName(), ResourceVersion: object.GetResourceVersion()}}
}

// Subscribe implements view.Lister.
func (l *lister) Subscribe(identity user.Info) (permissions, objects <-chan struct{}, stop func()) {
	permissions, stopPermissions := l.Scopes.Subscribe(identity)
	interest, objects := l.changes.Subscribe(access.SubjectFor(identity.GetName(), identity.GetGroups()).Subjects())
	return permissions, objects, func() {
		stopPermissions()
		l.changes.Remove(interest)
	}
}

// Get implements view.Lister.
func (l *lister) Get(ctx context.Context, identity user.Info, name string) (view.Object, error) {
	visible, err := l.Permit(ctx, identity)
	if err != nil {
		return nil, err
	}
	objects, err := visible()
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(objects, func(o view.Object) bool { return o.GetName() == name })
	if at < 0 {
		return nil, apierrors.NewNotFound(clusterviewv1alpha1.Resource("userpermissions"), name)
	}
	return objects[at], nil
}

// Permit implements view.Lister.
func (l *lister) Permit(ctx context.Context, identity user.Info) (visible func() ([]view.Object, error), err error) {
	if !l.ClusterRoles.HasSynced() {
		return nil, serving.Unavailable("the ClusterRoles of the hub are not listed yet; try again later")
	}
	scope, err := serving.ScopeOf(ctx, l.Scopes, identity)
	if err != nil {
		return nil, err
	}
	return func() ([]view.Object, error) { return l.visible(identity, scope) }, nil
}

func (l *lister) visible(identity user.Info, scope visibility.Scope) ([]view.Object, error) {
	shown := map[string]*rbacv1.ClusterRole{}
	for _, stored := range l.ClusterRoles.GetStore().List() {
		if role, ok := stored.(*rbacv1.ClusterRole); ok && isShown(role) {
			shown[role.Name] = role
		}
	}
	// Objects with these names show permissions on the hub.
	delete(shown, clusterviewv1alpha1.AdminRole)
	delete(shown, clusterviewv1alpha1.ViewRole)
	clusters, err := l.Bound.Sorted()
	if err != nil {
		return nil, err
	}
	places := l.Bound.Places(identity, clusters, func(role rbac.Key) bool { return role.Kind == rbac.KindClusterRole && shown[role.Name] != nil })
	administered, viewed := l.throughHub(identity, scope, clusters)
	shown[clusterviewv1alpha1.AdminRole], places[clusterviewv1alpha1.AdminRole] = everything(rbacv1.VerbAll), administered
	shown[clusterviewv1alpha1.ViewRole], places[clusterviewv1alpha1.ViewRole] = everything("get", "list", "watch"), viewed
	var objects []view.Object
	for _, name := range slices.Sorted(maps.Keys(places)) {
		if len(places[name]) > 0 {
			objects = append(objects, newObject(name, shown[name], places[name]))
		}
	}
	return objects, nil
}

// throughHub returns the clusters that the caller may administer, and those that the caller may only view, through the hub.
func (l *lister) throughHub(identity user.Info, scope visibility.Scope, clusters []string) (administered, viewed []access.Place) {
	namespaces, everywhere := l.Bound.Index.Namespaces(view.OnHub(identity), administer, l.Bound.HubCluster)
	for _, cluster := range clusters {
		_, named := namespaces[cluster]
		switch place := (access.Place{Cluster: cluster}); {
		case !scope.Cluster(cluster):
		case everywhere || named:
			administered = append(administered, place)
		default:
			viewed = append(viewed, place)
		}
	}
	return administered, viewed
}

func everything(verbs ...string) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{{APIGroups: []string{rbacv1.APIGroupAll}, Resources: []string{rbacv1.ResourceAll}, Verbs: verbs}}}
}

// all are the namespaces of a binding in a whole cluster.
var all = []string{"*"}

// newObject returns a UserPermission. Its resource version is a digest of its content, and the same on each replica.
func newObject(name string, role *rbacv1.ClusterRole, places []access.Place) view.Object {
	content := []byte(role.UID + "/")
	content = append(content, role.ResourceVersion...)
	bindings := make([]clusterviewv1alpha1.ClusterBinding, len(places))
	for i, place := range places {
		b := clusterviewv1alpha1.ClusterBinding{Cluster: place.Cluster, Scope: clusterviewv1alpha1.ScopeNamespace, Namespaces: place.Namespaces}
		if place.Namespaces == nil {
			b.Scope, b.Namespaces = clusterviewv1alpha1.ScopeCluster, all
		}
		bindings[i] = b
		content = append(append(content, '/'), place.Cluster...)
		for _, namespace := range b.Namespaces {
			content = append(append(content, ' '), namespace...)
		}
	}
	digest := fnv.New64a()
	_, _ = digest.Write(content)
	return &clusterviewv1alpha1.UserPermission{
		ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: strconv.FormatUint(digest.Sum64(), 10)},
		Status: clusterviewv1alpha1.UserPermissionStatus{
			Bindings: bindings, ClusterRoleDefinition: clusterviewv1alpha1.ClusterRoleDefinition{Rules: role.Rules},
		},
	}
}
