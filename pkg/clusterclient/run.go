package clusterclient

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

// Run watches the account until ctx ends, and returns after it has stopped. It may be called again afterwards.
func (s *Source) Run(ctx context.Context) {
	s.running.Store(true)
	defer s.running.Store(false)
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		follow(ctx, s, s.hub.core.RESTClient(), "secrets", s.cluster, s.name,
			&s.secret.problem, &mirror[corev1.Secret]{s.observeSecret})
	})
	if s.options.Host == "" {
		running.Go(func() {
			follow(ctx, s, s.hub.clusters.RESTClient(), "managedclusters", "", s.cluster,
				&s.address.problem, &mirror[clusterv1.ManagedCluster]{s.observeCluster})
		})
	}
}

// follow watches a single object for a mirror. With the field selector, a rule with this resourceName allows the list and
// the watch.
func follow[T any](ctx context.Context, s *Source, client cache.Getter, resource, namespace, name string, problem *error, observer *mirror[T]) {
	note := func(err error) {
		// An error at the end of Run must not replace an earlier one.
		if err != nil && ctx.Err() == nil {
			s.failed(problem, err)
		}
	}
	source := cache.NewListWatchFromClient(client, resource, namespace, fields.OneTermEqualSelector(metav1.ObjectNameField, name))
	noting := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := source.ListWithContextFunc(ctx, options)
			note(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			events, err := source.WatchFuncWithContext(ctx, options)
			note(err)
			return events, err
		},
	}
	cache.NewReflectorWithOptions(noting, new(T), observer, cache.ReflectorOptions{
		Name: "tokens",
		// The default backoff can reach half a minute, which is too long for a replaced token after an outage of the hub.
		Backoff: &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Steps: 5, Cap: 10 * time.Second, Jitter: 0.5},
	}).RunWithContext(ctx)
}

// mirror is the store of a reflector of one object. It stores nothing.
type mirror[T any] struct {
	observe func(*T)
}

func (m *mirror[T]) see(obj any) error {
	if object, ok := obj.(*T); ok {
		m.observe(object)
	}
	return nil
}

// Add implements cache.ReflectorStore.
func (m *mirror[T]) Add(obj any) error { return m.see(obj) }

// Update implements cache.ReflectorStore.
func (m *mirror[T]) Update(obj any) error { return m.see(obj) }

// Delete implements cache.ReflectorStore.
func (m *mirror[T]) Delete(any) error {
	m.observe(nil)
	return nil
}

// Replace implements cache.ReflectorStore.
func (m *mirror[T]) Replace(list []any, _ string) error {
	if len(list) == 0 {
		m.observe(nil)
		return nil
	}
	return m.see(list[0])
}

// Resync implements cache.ReflectorStore.
func (m *mirror[T]) Resync() error { return nil }
