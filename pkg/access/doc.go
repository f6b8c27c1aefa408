// Package access answers who may do what on the clusters of a fleet. An Index contains the roles and bindings that
// clusters report, and decides requests as the RBAC authorizer of Kubernetes does.
//
// The package is pure: it has no clients and no clock.
package access
