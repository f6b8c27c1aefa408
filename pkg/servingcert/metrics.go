package servingcert

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var expiration = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Subsystem: "hub_apiserver", Name: "serving_certificate_expiration_timestamp_seconds", StabilityLevel: metrics.ALPHA,
	Help: "Unix time in seconds at which the certificate expires, by certificate: serving, which this replica serves, or ca, its certificate authority. Only with --serving-certificate-secret.",
}, []string{"certificate"})

func init() { legacyregistry.MustRegister(expiration) }
