package csr

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var removedRequests = metrics.NewCounter(&metrics.CounterOpts{
	Subsystem: "hub_apiserver", Name: "registration_removed_requests_total", StabilityLevel: metrics.ALPHA,
	Help: "Number of CertificateSigningRequests of agents that were removed because their cluster exceeded its limit.",
})

func init() { legacyregistry.MustRegister(removedRequests) }
