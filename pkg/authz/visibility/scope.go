// Package visibility authorizes searches: it determines which resources a caller may find.
//
// On the hub, callers find the resources that they may list, by API group, resource, namespace and name. On a managed
// cluster, callers who may create managedclusterviews.view.open-cluster-management.io in the cluster's namespace find
// everything except Secrets. If the configuration enables it, callers also find the resources that they may list there:
// by the RBAC that the cluster reports, or by ClusterPermissions while it is not known.
//
// A Compiler computes this from the hub's RBAC: feeds.go follows the objects, compile.go
// collects the permissions of an identity, and allowed.go decides. If the hub has another
// authorizer, the Compiler sends SubjectAccessReviews instead: mode.go, reviews.go.
package visibility

import "slices"

// Class contains the properties of a resource that a decision depends on, in addition to its name.
type Class struct {
	// Cluster is the cluster that reported the resource.
	Cluster string
	// Hub is set for resources of the hub.
	Hub bool
	// Group and Resource are the API group and the plural name, as in an RBAC rule.
	Group, Resource string
	// Namespace is the namespace of the resource. It is empty if the resource is cluster-scoped.
	Namespace string
}

// Secret reports whether resources of the class are Secrets.
func (c Class) Secret() bool { return c.Group == "" && c.Resource == "secrets" }

// Decision contains the resources of a class that a caller may find.
type Decision struct {
	// All is set if the caller may find all of them.
	All bool
	// Names are the names that the caller may find if All is not set, sorted.
	Names []string
}

// Scope contains the permissions of one caller. The zero Scope allows nothing, and only this
// package can create others. A Scope is immutable: changed permissions lead to a new one.
//
// Scopes are comparable. Equal Scopes grant the same permissions, so engines may cache by ID.
type Scope struct {
	allowed *allowed
}

// everything is the Scope of a privileged caller.
var everything = Scope{allowed: (&allowed{hub: allGrants, anyView: true}).numbered()}

// Everything returns the Scope of a privileged caller: everything on the hub, and everything except
// Secrets on every managed cluster. It is for reads of the server itself.
func Everything() Scope { return everything }

// ID identifies the Scope in this process; 0 is the zero Scope.
func (s Scope) ID() uint64 {
	if s.allowed == nil {
		return 0
	}
	return s.allowed.id
}

// WholeHub reports whether the caller may find everything on the hub.
func (s Scope) WholeHub() bool { return s.allowed != nil && s.allowed.hub.whole() }

// AllClusters reports whether the caller may find everything except Secrets on all managed clusters.
func (s Scope) AllClusters() bool { return s.allowed != nil && s.allowed.anyView }

// Cluster reports whether the caller may find everything except Secrets on a managed cluster.
func (s Scope) Cluster(name string) bool {
	if s.allowed == nil {
		return false
	}
	_, found := s.allowed.views[name]
	return found || s.allowed.anyView
}

// Decide returns the resources of a class that the caller may find. It is fast enough to be
// called for every class of a fleet.
func (s Scope) Decide(class Class) Decision {
	switch {
	case s.allowed == nil:
		return Decision{}
	case class.Hub:
		return s.allowed.hub.decide(class.Group, class.Resource, class.Namespace)
	case !class.Secret() && s.Cluster(class.Cluster):
		return Decision{All: true}
	}
	if granted := s.allowed.clusters[class.Cluster]; granted != nil {
		return granted.decide(class.Group, class.Resource, class.Namespace)
	}
	return Decision{}
}

// Gets returns the names of the objects of a cluster-scoped resource of the group of ManagedClusters that the caller may
// get on the hub.
func (s Scope) Gets(resource string) Decision {
	if s.allowed == nil {
		return Decision{}
	}
	return s.allowed.hub.gets(resource)
}

// Includes reports whether the decision contains a name.
func (d Decision) Includes(name string) bool {
	if d.All {
		return true
	}
	_, found := slices.BinarySearch(d.Names, name)
	return found
}

// Allows reports whether the caller may find one object.
func (s Scope) Allows(object Object) bool {
	return s.Decide(object.Class).Includes(object.Name)
}

// Object is an object that Allows decides about.
type Object struct {
	Class
	Name string
}
