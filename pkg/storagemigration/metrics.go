package storagemigration

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	rewritten = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: "hub_apiserver", Name: "storage_migration_rewritten_objects_total", StabilityLevel: metrics.ALPHA,
		Help: "Objects that were rewritten because etcd contained them in another version, by resource.",
	}, []string{"resource"})

	pendingResources = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: "hub_apiserver", Name: "storage_migration_pending", StabilityLevel: metrics.ALPHA,
		Help: "1 while etcd may contain objects of a resource in another version than the stored one, by resource. Only the leading replica reports it.",
	}, []string{"resource"})
)

func init() { legacyregistry.MustRegister(rewritten, pendingResources) }
