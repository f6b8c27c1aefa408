package membership

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const subsystem = "agent_registration"

var (
	registrations = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "bootstraps_total", StabilityLevel: metrics.ALPHA,
		Help: "Attempts to register with the bootstrap identity, by result.",
	}, []string{"result"})
	renewals = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "certificate_renewals_total", StabilityLevel: metrics.ALPHA,
		Help: "Attempts to renew the client certificate, by result.",
	}, []string{"result"})
	certificateExpiry = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "certificate_expiration_timestamp_seconds", StabilityLevel: metrics.ALPHA,
		Help: "Time when the client certificate for the hub expires.",
	})
	joined = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "joined", StabilityLevel: metrics.ALPHA,
		Help: "1 while the hub accepts this cluster and the agent works for it.",
	})
)

func init() {
	legacyregistry.MustRegister(registrations, renewals, certificateExpiry, joined)
}
