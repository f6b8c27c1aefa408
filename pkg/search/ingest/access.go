package ingest

import (
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// accessBytes bounds the JSON of the internal properties of a resource, in which each byte may be escaped.
const accessBytes = 2*inventory.MaxAccessBytes + 1<<10

// accessNames contains the internal properties in reports.
var accessNames = []string{inventory.Access, inventory.RoleRef, inventory.Rules, inventory.Subjects}

func isAccess(p query.Property) bool { return slices.Contains(accessNames, p.Name) }

// accessOf returns the internal properties that a resource may have. Those of other resources are dropped.
func accessOf(properties query.Properties, report bool) []string {
	if report {
		return []string{inventory.Access}
	}
	if search.Text(properties, query.APIGroup) != rbacv1.GroupName {
		return nil
	}
	switch search.Text(properties, query.Kind) {
	case "Role", "ClusterRole":
		return []string{inventory.Rules}
	case "RoleBinding", "ClusterRoleBinding":
		return []string{inventory.RoleRef, inventory.Subjects}
	}
	return nil
}

// splitAccess splits the properties of a resource into those for searches and the internal ones. report is true for
// the AccessReport. If the internal properties are rejected, it returns the reason as text.
func splitAccess(properties query.Properties, report bool) (public, internal query.Properties, problem string) {
	if !slices.ContainsFunc(properties, isAccess) {
		return properties, nil, ""
	}
	allowed := accessOf(properties, report)
	size := 0
	for _, p := range properties {
		if !isAccess(p) || !slices.Contains(allowed, p.Name) {
			continue
		}
		if p.Type != query.String {
			return nil, nil, fmt.Sprintf("property %s must be a string", p.Name)
		}
		size += len(p.Leaves[0].Text)
		internal = append(internal, p)
	}
	if size > inventory.MaxAccessBytes {
		return nil, nil, fmt.Sprintf("the content of the RBAC object is longer than %d bytes", inventory.MaxAccessBytes)
	}
	return slices.DeleteFunc(properties, isAccess), internal, ""
}

// withoutAccess returns the length of the JSON of properties without the internal ones.
func withoutAccess(properties query.Properties) int {
	return len(slices.DeleteFunc(slices.Clone(properties), isAccess).AppendJSON(nil))
}
