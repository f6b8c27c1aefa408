// Package visibility knows what a caller may find: the RBAC check for search.
//
// On the hub a caller finds what the hub lets it list, by API group, resource,
// namespace and name. On a managed cluster it finds everything but Secrets if it may
// create managedclusterviews.view.open-cluster-management.io in the cluster's
// namespace; where it is so configured, also what ClusterPermissions let it list there.
//
// A Compiler reads this from the hub's RBAC as its informers know it: policy.go keeps
// the objects, compile.go gathers what concerns an identity, allowed.go decides. Where
// another authorizer decides too it asks the hub instead: mode.go, reviews.go.
package visibility

import "slices"

// Class is what decisions about resources depend on beside their names.
type Class struct {
	// Cluster is the cluster that reported the resource.
	Cluster string
	// Hub is true for resources of the hub itself.
	Hub bool
	// Group and Resource are the API group (empty for the core group) and the plural
	// name, as in a rule of RBAC.
	Group, Resource string
	// Namespace of the resource; empty for one without.
	Namespace string
}

// Secret tells whether resources of the class are Secrets.
func (c Class) Secret() bool { return c.Group == "" && c.Resource == "secrets" }

// Decision is what of a class a caller may find.
type Decision struct {
	// All is true where it is everything.
	All bool
	// Names are the names of what may be found where not everything may; sorted.
	Names []string
}

// Scope is what one caller may find. The zero Scope is nothing. Only this package
// makes others. A Scope does not change: when permissions do, there is a new one.
//
// Scopes are comparable: equal ones allow the same, so engines may keep what they
// have derived from one under its ID.
type Scope struct {
	allowed *allowed
}

// ID names the scope in this process; 0 is the zero Scope.
func (s Scope) ID() uint64 {
	if s.allowed == nil {
		return 0
	}
	return s.allowed.id
}

// WholeHub tells whether everything on the hub may be found.
func (s Scope) WholeHub() bool { return s.allowed != nil && s.allowed.wholeHub() }

// AllClusters tells whether everything but Secrets may be found on every managed cluster.
func (s Scope) AllClusters() bool { return s.allowed != nil && s.allowed.allClusters() }

// Cluster tells whether everything but Secrets may be found on a managed cluster.
func (s Scope) Cluster(name string) bool { return s.allowed != nil && s.allowed.cluster(name) }

// Decide tells what of a class may be found. It is quick enough to be asked for
// every class of a fleet.
func (s Scope) Decide(class Class) Decision {
	if s.allowed == nil {
		return Decision{}
	}
	return s.allowed.decide(class)
}

// Allows tells whether one object may be found.
func (s Scope) Allows(object Object) bool {
	decision := s.Decide(object.Class)
	if decision.All {
		return true
	}
	_, found := slices.BinarySearch(decision.Names, object.Name)
	return found
}

// Object is what Allows decides about.
type Object struct {
	Class
	Name string
}
