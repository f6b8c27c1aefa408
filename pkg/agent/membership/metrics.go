package membership

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const subsystem = "agent_registration"

var (
	registrations = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "bootstraps_total",
		Help:           "Attempts to register with the bootstrap identity, by result.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})
	renewals = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "certificate_renewals_total",
		Help:           "Attempts to renew the client certificate, by result.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})
	certificateExpiry = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem:      subsystem,
		Name:           "certificate_expiration_timestamp_seconds",
		Help:           "Time when the client certificate for the hub expires.",
		StabilityLevel: metrics.ALPHA,
	})
	joined = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem:      subsystem,
		Name:           "joined",
		Help:           "1 while the hub accepts this cluster and the agent works for it.",
		StabilityLevel: metrics.ALPHA,
	})
)

func init() {
	legacyregistry.MustRegister(registrations, renewals, certificateExpiry, joined)
}
