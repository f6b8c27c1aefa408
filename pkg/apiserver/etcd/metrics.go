package etcd

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
)

const (
	observationPeriod  = 10 * time.Second
	observationTimeout = 5 * time.Second
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
)

var (
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

// Observe updates the metrics of the database until ctx ends.
func (s *Server) Observe(ctx context.Context) {
	quotaGauge.Set(float64(s.etcd.Server.Cfg.QuotaBackendBytes))
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, observationTimeout)
		defer cancel()
		if err := s.observe(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Reading the state of the embedded etcd failed")
		}
	}, observationPeriod, 0.1, true)
}

func (s *Server) observe(ctx context.Context) error {
	status, err := s.client.Status(ctx, s.Endpoint())
	if err != nil {
		return err
	}
	alarms, err := s.client.AlarmList(ctx)
	if err != nil {
		return err
	}
	full := 0.0
	for _, alarm := range alarms.Alarms {
		if alarm.Alarm == etcdserverpb.AlarmType_NOSPACE {
			full = 1
		}
	}
	sizeGauge.Set(float64(status.DbSize))
	spaceGauge.Set(full)
	return nil
}
