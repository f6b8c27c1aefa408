package definition

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
)

// Watches are the watches of clients, which must not continue with a resource version of other data: after objects have
// moved between the server and CustomResourceDefinitions of the hub, or after a snapshot is restored. Such a watch
// would be silent until the server reaches that version. The zero value is ready for use.
type Watches struct {
	mu   sync.Mutex
	held bool
	// until is the context whose end stops all open watches, and end ends it. Both are nil while there is no watch.
	until context.Context
	end   context.CancelFunc
	// since are the resource versions from which a watch may continue. It is nil until this process has seen the end of a
	// migration, each of which begins a new map.
	since map[schema.GroupResource]uint64
}

// Hold ends all watches with held, and refuses new ones until it is called without.
func (w *Watches) Hold(held bool) {
	w.mu.Lock()
	if w.held && !held {
		w.since = map[schema.GroupResource]uint64{}
	}
	w.held = held
	w.mu.Unlock()
	if held {
		w.End()
	}
}

// End ends all watches. Their clients continue with another replica, or with this one later.
func (w *Watches) End() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.end != nil {
		w.end()
	}
	w.until, w.end = nil, nil
}

// Watch implements rest.Watcher. It returns an error with status 410 for a resource version that the client must have
// received from elsewhere, so that it lists the objects again.
func (r *REST) Watch(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	w := r.resource.Watches
	if w == nil || ByServer(ctx) {
		return r.watchStore(ctx, options)
	}
	if err := w.admit(ctx, r.Store, options); err != nil {
		return nil, err
	}
	until, err := w.begin()
	if err != nil {
		return nil, err
	}
	watching, err := r.watchStore(ctx, options)
	if err != nil {
		return nil, err
	}
	// Unlike the end of ctx, Stop also ends a watch whose client does not read.
	forget := context.AfterFunc(until, watching.Stop)
	context.AfterFunc(ctx, func() { forget() })
	return watching, nil
}

func errMigrating() error {
	return apierrors.NewResourceExpired("objects of Open Cluster Management are being migrated: list them again")
}

func (w *Watches) admit(ctx context.Context, store *genericregistry.Store, options *metainternalversion.ListOptions) error {
	w.mu.Lock()
	held, since := w.held, w.since
	w.mu.Unlock()
	if held {
		return errMigrating()
	}
	if options == nil || options.ResourceVersion == "" || options.ResourceVersion == "0" {
		return nil
	}
	requested, err := strconv.ParseUint(options.ResourceVersion, 10, 64)
	if err != nil {
		return nil // the store returns the error
	}
	current, err := store.Storage.Storage.GetCurrentResourceVersion(ctx)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("reading the current resource version: %w", err))
	}
	resource := store.DefaultQualifiedResource
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := since[resource]; !known && since != nil {
		since[resource] = current
	}
	if requested > current || requested < since[resource] {
		return apierrors.NewResourceExpired(fmt.Sprintf("resource version %d is not one of this server, which is at %d: list the objects again", requested, current))
	}
	return nil
}

// begin returns a context that ends when all watches must end.
func (w *Watches) begin() (context.Context, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held {
		return nil, errMigrating()
	}
	if w.until == nil {
		w.until, w.end = context.WithCancel(context.Background())
	}
	return w.until, nil
}
