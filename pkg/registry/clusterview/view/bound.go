package view

import (
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/search/serving"
)

// maxNamespaces bounds the namespaces of a role on one cluster, which the cluster reports.
const maxNamespaces = 10_000

// Bound finds where roles are bound to callers.
type Bound struct {
	Index *access.Index
	// Clusters returns the names of all managed clusters, or an error while they are not listed.
	Clusters func() ([]string, error)
	// HubCluster is the name of the cluster that is the hub itself. It may be empty.
	HubCluster string
}

// Places returns where the wanted roles are bound to a caller, by the name of the role and sorted by cluster. The clusters
// are sorted. Identities that exist on the hub only, such as ServiceAccounts, have no places on managed clusters.
func (b *Bound) Places(identity user.Info, clusters []string, wanted func(role rbac.Key) bool) map[string][]access.Place {
	places := map[string][]access.Place{}
	managed := slices.DeleteFunc(slices.Clone(clusters), func(name string) bool { return name == b.HubCluster })
	if len(managed) < len(clusters) {
		places = b.Index.Places(OnHub(identity), []string{b.HubCluster}, wanted, maxNamespaces)
	}
	if subject, known := access.SubjectOf(visibility.ManagedSubjects(identity)); known {
		for role, more := range b.Index.Places(subject, managed, wanted, maxNamespaces) {
			more = append(more, places[role]...)
			slices.SortFunc(more, func(a, b access.Place) int { return strings.Compare(a.Cluster, b.Cluster) })
			places[role] = more
		}
	}
	return places
}

// Sorted returns the names of all managed clusters, sorted. The error is an API error.
func (b *Bound) Sorted() ([]string, error) {
	clusters, err := b.Clusters()
	if err != nil {
		return nil, serving.Unavailable("the ManagedClusters are not listed yet; try again later")
	}
	slices.Sort(clusters)
	return clusters, nil
}

// OnHub returns the subject that a caller is on the hub.
func OnHub(identity user.Info) access.Subject {
	return access.Subject{User: identity.GetName(), Groups: identity.GetGroups()}
}
