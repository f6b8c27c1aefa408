package work

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/time/rate"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
)

// discoveryMapper is a decide.Mapper. When a kind is missing, it reads the discovery documents of
// the managed cluster again, at a limited rate.
type discoveryMapper struct {
	delegate  *restmapper.DeferredDiscoveryRESTMapper
	documents discovery.CachedDiscoveryInterface
	resets    *rate.Limiter
}

// Each ManifestWork that waits for a kind has its own backoff. These constants bound the total
// rate.
const (
	resetsPerSecond = 2
	resetBurst      = 4
)

func newDiscoveryMapper(client discovery.DiscoveryInterface) *discoveryMapper {
	documents := memory.NewMemCacheClient(client)
	return &discoveryMapper{
		delegate:  restmapper.NewDeferredDiscoveryRESTMapper(documents),
		documents: documents,
		resets:    rate.NewLimiter(resetsPerSecond, resetBurst),
	}
}

// Mapping implements decide.Mapper.
func (m *discoveryMapper) Mapping(ctx context.Context, kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
	if kind.Kind == "" || kind.Version == "" {
		return nil, fmt.Errorf("apiVersion and kind are required, but the manifest has %q", kind.String())
	}
	mapping, err := m.delegate.RESTMappingWithContext(ctx, kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) && m.resets.Allow() {
		m.delegate.ResetWithContext(ctx)
		mapping, err = m.delegate.RESTMappingWithContext(ctx, kind.GroupKind(), kind.Version)
	}
	if meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("the managed cluster does not serve %s: %w", kind.String(), err)
	}
	return mapping, err
}

// watchable reports whether the objects of a resource can be watched. Some objects, such as
// reviews, can only be created.
func (m *discoveryMapper) watchable(resource schema.GroupVersionResource) bool {
	served, err := m.documents.ServerResourcesForGroupVersion(resource.GroupVersion().String())
	if err != nil {
		return true // if it is not watchable, the watch fails
	}
	for _, candidate := range served.APIResources {
		if candidate.Name == resource.Resource {
			return slices.Contains(candidate.Verbs, "list") && slices.Contains(candidate.Verbs, "watch")
		}
	}
	return true
}

// served returns a resource in a version that the managed cluster serves.
func (m *discoveryMapper) served(ctx context.Context, resource schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	if err := m.resets.Wait(ctx); err != nil {
		return resource, err
	}
	m.delegate.ResetWithContext(ctx)
	return m.delegate.ResourceForWithContext(ctx, resource.GroupResource().WithVersion(""))
}

// stale makes the next call of Mapping read the discovery documents again, at a limited rate.
func (m *discoveryMapper) stale() {
	if m.resets.Allow() {
		m.delegate.Reset()
	}
}
