package etcd

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	sizeGauge = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: "hub_apiserver", Name: "etcd_size_bytes", StabilityLevel: metrics.ALPHA,
		Help: "Size of the database of the embedded etcd on disk.",
	})
	quotaGauge = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: "hub_apiserver", Name: "etcd_quota_bytes", StabilityLevel: metrics.ALPHA,
		Help: "Size of the database at which the embedded etcd rejects writes (--data-quota-bytes). 0 without an embedded etcd.",
	})
	spaceGauge = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: "hub_apiserver", Name: "etcd_out_of_space", StabilityLevel: metrics.ALPHA,
		Help: "1 while the embedded etcd rejects writes because its database has reached the quota, 0 otherwise.",
	})
	intervalGauge = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: "hub_apiserver", Name: "snapshot_interval_seconds", StabilityLevel: metrics.ALPHA,
		Help: "Interval of snapshots of the embedded etcd (--snapshot-interval). 0 without a schedule.",
	})
	lastGauge = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: "hub_apiserver", Name: "snapshot_last_success_timestamp_seconds", StabilityLevel: metrics.ALPHA,
		Help: "Time of the last complete snapshot in --snapshot-dir, in seconds since 1970. 0 if there is none.",
	})
	bytesGauge = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: "hub_apiserver", Name: "snapshot_size_bytes", StabilityLevel: metrics.ALPHA,
		Help: "Size of the last complete snapshot in --snapshot-dir.",
	})
	failuresCounter = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem: "hub_apiserver", Name: "snapshot_failures_total", StabilityLevel: metrics.ALPHA,
		Help: "Scheduled snapshots that failed.",
	})
)

func init() {
	legacyregistry.MustRegister(sizeGauge, quotaGauge, spaceGauge, intervalGauge, lastGauge, bytesGauge, failuresCounter)
}
