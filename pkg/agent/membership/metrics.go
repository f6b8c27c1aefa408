package membership

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const subsystem = "agent_registration"

var (
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
	legacyregistry.MustRegister(certificateExpiry, joined)
}
