package fleetgen

import (
	"fmt"
	"strings"
)

// User is the name of the user that Policy is about.
const User = "restricted"

// namespacesPerCluster is how many namespaces of its own the hub has for each cluster.
const namespacesPerCluster = 4

// Policy is the RBAC of a restricted User, as YAML documents: it may see so many
// managed clusters from the first on, and list everything in so many namespaces of
// the hub that do not belong to a cluster. With first 1 the namespaces are the first
// of the hub, and with a later first later ones, which in a fleet of 100 clusters exist.
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
