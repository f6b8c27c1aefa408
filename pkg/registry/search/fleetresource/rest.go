// Package fleetresource serves fleetresources: the resources of the fleet as objects that kubectl can get, list and
// watch.
package fleetresource

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/serving"
	"open-cluster-management.io/hub-apiserver/pkg/search/watch"
)

// maxChunk bounds the objects of a response with a limit. The client can continue such a list. maxList bounds the
// objects of a response without a limit. Each object takes a few kilobytes until it is written.
const maxChunk, maxList = 1000, 16_000

// kubectlChunk is the default limit of kubectl.
const kubectlChunk = 500

// retrySeconds is the time after which a client may retry with a version that the engine has not
// reached yet.
const retrySeconds = 1

// Options are the dependencies of fleetresources.
type Options struct {
	Engine search.Engine
	Scopes search.Scopes
	// WatchMemory bounds the memory of all watches. If it is nil, there is no bound.
	WatchMemory *watch.Memory
}

// REST serves fleetresources.
type REST struct {
	definition.Base
	rest.TableConvertor
	Options
}

var (
	_ rest.Getter  = &REST{}
	_ rest.Lister  = &REST{}
	_ rest.Watcher = &REST{}
)

// NewREST returns the storage of fleetresources.
func NewREST(options Options) *REST {
	return &REST{
		Base: definition.Base{
			Object: &searchv1alpha1.FleetResource{}, Objects: &searchv1alpha1.FleetResourceList{},
			Namespaced: true, Singular: "fleetresource", Short: []string{"fr"},
		},
		TableConvertor: definition.NewBareTableConvertor(columns), Options: options,
	}
}

// Get implements rest.Getter.
func (r *REST) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	scope, err := serving.Scope(ctx, r.Scopes)
	if err != nil {
		return nil, err
	}
	namespace := request.NamespaceValue(ctx)
	item, err := search.Get(ctx, r.Engine, scope, uidOf(namespace, name))
	if err != nil {
		return nil, serving.Error(ctx, err)
	}
	// The caller was authorized in this namespace. The name of a resource that represents a cluster does not depend
	// on it.
	if item == nil || item.Cluster != namespace {
		return nil, apierrors.NewNotFound(searchv1alpha1.Resource("fleetresources"), name)
	}
	return newObject(item), nil
}

// List implements rest.Lister. It returns the current state, even if an older resource version is requested.
// Each later chunk contains the state at the time of its request.
func (r *REST) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	selected, err := newSelection(request.NamespaceValue(ctx), options)
	if err != nil {
		return nil, err
	}
	scope, err := serving.Scope(ctx, r.Scopes)
	if err != nil {
		return nil, err
	}
	version, err := r.Engine.Version(ctx)
	if err != nil {
		return nil, serving.Error(ctx, err)
	}
	if err := checkVersion(options, version); err != nil {
		return nil, err
	}
	list := &searchv1alpha1.FleetResourceList{Items: []searchv1alpha1.FleetResource{}}
	list.ResourceVersion = strconv.FormatUint(version, 10)
	if selected.name != "" {
		return r.listNamed(ctx, scope, selected, list)
	}

	limit := maxList
	if options.Limit > 0 {
		limit = int(min(options.Limit, maxChunk))
	}
	wanted := search.Request{Query: selected.query, Now: time.Now(), Items: true, Limit: limit, Continue: options.Continue}
	found, err := r.find(search.WithBudget(ctx), scope, wanted, options.Limit >= kubectlChunk && serving.WantsTable(ctx))
	if err != nil {
		return nil, serving.Error(ctx, err)
	}
	if found.Continue != "" && options.Limit <= 0 {
		// A client without a limit does not request the rest.
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"the list has %d fleetresources, and a response without limit has at most %d; list them in chunks with limit and continue, as kubectl does, or select fewer", found.Count, maxList))
	}
	list.Continue = found.Continue
	if found.Version > 0 {
		list.ResourceVersion = strconv.FormatUint(found.Version, 10)
	}
	if remaining := int64(found.Count - len(found.Items)); found.Continue != "" && options.Continue == "" && remaining > 0 {
		list.RemainingItemCount = &remaining
	}
	list.Items = make([]searchv1alpha1.FleetResource, 0, len(found.Items))
	for i := range found.Items {
		list.Items = append(list.Items, *newObject(&found.Items[i]))
	}
	return list, nil
}

// find returns a chunk, or all matches of a table that is not too large. The API conventions allow servers to ignore
// the limit. After ten requests, kubectl sends only five requests per second, so a table of 16,000 rows would take
// five seconds in chunks.
func (r *REST) find(ctx context.Context, scope visibility.Scope, wanted search.Request, whole bool) (*search.Result, error) {
	found, err := r.Engine.Search(ctx, scope, &wanted)
	if err != nil || !whole || wanted.Continue != "" || found.Continue == "" || found.Count > maxList {
		return found, err
	}
	wanted.Limit, wanted.Continue = found.Count-len(found.Items), found.Continue
	rest, err := r.Engine.Search(ctx, scope, &wanted)
	if err != nil {
		return nil, err
	}
	all := *found
	all.Items, all.Continue = slices.Concat(found.Items, rest.Items), rest.Continue
	return &all, nil
}

// listNamed lists the resources with a name: at most one in a namespace, and rarely more in all namespaces, because
// names are UIDs.
func (r *REST) listNamed(ctx context.Context, scope visibility.Scope, selected *listSelection, list *searchv1alpha1.FleetResourceList) (runtime.Object, error) {
	// The UID of a resource that represents a cluster does not depend on the namespace.
	uids := []string{uidOf(selected.namespace, selected.name)}
	if selected.namespace == "" && !strings.HasPrefix(selected.name, search.ClusterUIDPrefix) {
		states, err := r.Engine.Clusters(ctx)
		if err != nil {
			return nil, serving.Error(ctx, err)
		}
		uids = uids[:0]
		for i := range states {
			uids = append(uids, uidOf(states[i].Name, selected.name))
		}
	}
	items, err := r.Engine.GetMany(ctx, scope, uids)
	if err != nil {
		return nil, serving.Error(ctx, err)
	}
	now := time.Now()
	for i := range items {
		item := &items[i]
		if selected.namespace != "" && item.Cluster != selected.namespace {
			continue
		}
		matches, err := selected.matches(item, now)
		if err != nil {
			return nil, err
		}
		if matches {
			list.Items = append(list.Items, *newObject(item))
		}
	}
	return list, nil
}

// checkVersion returns an error for a resource version that the engine has not reached, and for an exact version
// that is not current.
func checkVersion(options *metainternalversion.ListOptions, version uint64) error {
	if options.ResourceVersion == "" || options.ResourceVersion == "0" {
		return nil
	}
	wanted, err := strconv.ParseUint(options.ResourceVersion, 10, 64)
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid resource version %q: %v", options.ResourceVersion, err))
	}
	switch {
	case wanted > version:
		return storage.NewTooLargeResourceVersionError(wanted, version, retrySeconds)
	case wanted < version && options.ResourceVersionMatch == metav1.ResourceVersionMatchExact:
		return apierrors.NewResourceExpired(fmt.Sprintf("resource version %d is no longer available", wanted))
	}
	return nil
}

// uidOf returns the UID in the fleet of an object.
func uidOf(cluster, name string) string {
	if strings.HasPrefix(name, search.ClusterUIDPrefix) {
		return name
	}
	return cluster + "/" + name
}

// nameOf returns the name of the object for a UID in the fleet.
func nameOf(uid string) string {
	if _, name, ok := strings.Cut(uid, "/"); ok {
		return name
	}
	return uid
}
