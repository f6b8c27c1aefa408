// Package roleassignment tests MulticlusterRoleAssignments, from the checks in the request to the bindings on a managed
// cluster, in a fleet of test/framework.
package roleassignment
