package fleetgen

import (
	"fmt"
	"strings"
)

// User is the name of the user in Policy.
const User = "restricted"

// namespacesPerCluster is the number of namespaces of the hub for each cluster, apart from the cluster's namespace.
const namespacesPerCluster = 4

// Policy returns the RBAC of User as YAML documents. The user may view a number of managed
// clusters, starting with first. The user may also list all resources in a number of namespaces of
// the hub that do not belong to a cluster. With first 1, these are the first namespaces of the hub.
// With a greater first, they are later namespaces, which exist in a fleet of 100 clusters.
func Policy(first, clusters, namespaces int) string {
	var policy strings.Builder
	policy.WriteString(`apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: see-cluster}
rules:
- {apiGroups: [view.open-cluster-management.io], resources: [managedclusterviews], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: list-everything}
rules:
- {apiGroups: ["*"], resources: ["*"], verbs: [list]}
`)
	for i := range clusters {
		bind(&policy, ClusterName(first+i), "see-cluster")
	}
	for i := range namespaces {
		bind(&policy, freeNamespace(0, max(0, first-1)*namespacesPerCluster+i), "list-everything")
	}
	return policy.String()
}

func bind(policy *strings.Builder, namespace, role string) {
	fmt.Fprintf(policy, `---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {namespace: %q, name: %q}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %q}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: %q}
`, namespace, role, role, User)
}
