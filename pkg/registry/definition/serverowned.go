package definition

import "k8s.io/apiserver/pkg/registry/rest"

// readREST serves a resource that clients can only read. The methods of a storage determine its
// verbs, so it embeds an interface instead of *REST.
type readREST struct {
	readStorage
}

type readStorage interface {
	rest.Storage
	rest.Getter
	rest.Lister
	rest.Watcher
	rest.Scoper
	rest.SingularNameProvider
	rest.ShortNamesProvider
	rest.CategoriesProvider
	rest.StorageVersionProvider
}
