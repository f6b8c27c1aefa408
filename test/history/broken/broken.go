// Package broken runs the API server with a defect, to prove that the history checker finds it.
//
// Its seam is that of the generic API server: the RESTOptionsGetter between the registry and the watch cache.
package broken

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	"open-cluster-management.io/hub-apiserver/pkg/apiserver/options"
)

// Defect is the defect of a server.
type Defect string

const (
	// LosesWrites acknowledges one of 20 updates without storing it, as a server does that acknowledges writes
	// before they are in etcd, and crashes.
	LosesWrites Defect = "loses-writes"
	// DropsEvents omits one of 20 events from each watch.
	DropsEvents Defect = "drops-events"
	// ServesStaleReads answers a get with the object that it has read up to 300 ms before.
	ServesStaleReads Defect = "serves-stale-reads"
)

const (
	resource = "manifestworks"
	// dropEvery is the number of events of which a watch omits one. loseEvery is that of updates.
	dropEvery = 20
	loseEvery = 20
	// staleFor is the age up to which a read is repeated.
	staleFor = 300 * time.Millisecond
)

// Run runs the server with its usual arguments until ctx ends.
func Run(ctx context.Context, defect Defect, args []string) error {
	o := options.New()
	flags := pflag.NewFlagSet("apiserver", pflag.ContinueOnError)
	sets := o.Flags()
	for _, set := range sets.FlagSets {
		flags.AddFlagSet(set)
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := o.ServerRun.ComponentGlobalsRegistry.Set(); err != nil {
		return err
	}
	completed, err := o.Complete()
	if err != nil {
		return err
	}
	if err := completed.Validate(); err != nil {
		return err
	}
	config, err := completed.Config(nil)
	if err != nil {
		return err
	}
	config.Generic.RESTOptionsGetter = stores{config.Generic.RESTOptionsGetter, defect}
	server, err := config.Complete().New()
	if err != nil {
		return err
	}
	return server.Run(ctx)
}

// stores wraps the store of ManifestWorks.
type stores struct {
	generic.RESTOptionsGetter
	defect Defect
}

func (s stores) GetRESTOptions(r schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := s.RESTOptionsGetter.GetRESTOptions(r, example)
	if err != nil || r.Resource != resource {
		return options, err
	}
	decorate := options.Decorator
	options.Decorator = func(config *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error), newObject, newList func() runtime.Object,
		attributes storage.AttrFunc, trigger storage.IndexerFuncs, indexers *cache.Indexers) (storage.Interface, factory.DestroyFunc, error) {
		inner, destroy, err := decorate(config, prefix, key, newObject, newList, attributes, trigger, indexers)
		switch s.defect {
		case DropsEvents:
			inner = dropping{inner}
		case ServesStaleReads:
			inner = &stale{Interface: inner, reads: map[string]read{}}
		case LosesWrites:
			inner = &losing{Interface: inner}
		default:
			err = fmt.Errorf("unknown defect %q", s.defect)
		}
		return inner, destroy, err
	}
	return options, nil
}

type dropping struct{ storage.Interface }

func (d dropping) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	inner, err := d.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	var events atomic.Int64
	return watch.Filter(inner, func(e watch.Event) (watch.Event, bool) {
		return e, e.Type == watch.Bookmark || events.Add(1)%dropEvery != 0
	}), nil
}

type losing struct {
	storage.Interface
	updates atomic.Int64
}

func (l *losing) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool, preconditions *storage.Preconditions,
	update storage.UpdateFunc, cached runtime.Object) error {
	if l.updates.Add(1)%loseEvery != 0 {
		return l.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, update, cached)
	}
	var lost runtime.Object
	err := l.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, func(stored runtime.Object, meta storage.ResponseMeta) (runtime.Object, *uint64, error) {
		updated, ttl, err := update(stored.DeepCopyObject(), meta)
		lost = updated
		return stored, ttl, err
	}, cached)
	if err != nil {
		return err
	}
	rv, err := l.Versioner().ObjectResourceVersion(destination)
	if err != nil {
		return err
	}
	reflect.ValueOf(destination).Elem().Set(reflect.ValueOf(lost).Elem())
	return l.Versioner().UpdateObject(destination, rv+1)
}

type stale struct {
	storage.Interface
	mu    sync.Mutex
	reads map[string]read
}

type read struct {
	at     time.Time
	object runtime.Object
}

func (s *stale) Get(ctx context.Context, key string, opts storage.GetOptions, object runtime.Object) error {
	if opts.ResourceVersion != "" {
		return s.Interface.Get(ctx, key, opts, object)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, ok := s.reads[key]; ok && time.Since(last.at) < staleFor {
		reflect.ValueOf(object).Elem().Set(reflect.ValueOf(last.object.DeepCopyObject()).Elem())
		return nil
	}
	err := s.Interface.Get(ctx, key, opts, object)
	if err == nil {
		s.reads[key] = read{time.Now(), object.DeepCopyObject()}
	}
	return err
}
