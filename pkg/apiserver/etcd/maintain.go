package etcd

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

const (
	observationPeriod  = 10 * time.Second
	maintenancePeriod  = 5 * time.Minute
	maintenanceTimeout = time.Minute

	// defragmentAboveBytes is the minimum free space for a defragmentation, in addition to half of the database.
	defragmentAboveBytes = 64 << 20
)

// Maintain keeps the database small until ctx ends, and updates its metrics. The API server compacts old revisions at the
// interval --etcd-compaction-interval. Maintain returns the free space to the file system, and disarms the alarm that blocks
// writes when there is space again.
func (s *Server) Maintain(ctx context.Context) {
	quotaGauge.Set(float64(s.etcd.Server.Cfg.QuotaBackendBytes))
	var maintained time.Time
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, maintenanceTimeout)
		defer cancel()
		needed, err := s.observe(ctx)
		if err == nil && needed && time.Since(maintained) > maintenancePeriod {
			maintained = time.Now()
			err = s.defragment(ctx)
		}
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Maintenance of the embedded etcd failed")
		}
	}, observationPeriod, 0.1, true)
}

// observe updates the metrics of the database, and enables the log of etcd. It reports whether the database needs a
// defragmentation.
func (s *Server) observe(ctx context.Context) (bool, error) {
	status, err := s.client.Status(ctx, s.Endpoint())
	if err != nil {
		return false, fmt.Errorf("status: %w", err)
	}
	if status.StorageVersion != "" {
		s.logLevel.SetLevel(zap.WarnLevel)
	}
	// The only alarm of a single member is that of a full database.
	alarms, err := s.client.AlarmList(ctx)
	if err != nil {
		return false, fmt.Errorf("alarms: %w", err)
	}
	sizeGauge.Set(float64(status.DbSize))
	spaceGauge.Set(float64(min(len(alarms.Alarms), 1)))
	free := status.DbSize - status.DbSizeInUse
	return len(alarms.Alarms) > 0 || free >= defragmentAboveBytes && free >= status.DbSize/2, nil
}

func (s *Server) defragment(ctx context.Context) error {
	klog.FromContext(ctx).Info("Defragmenting the embedded etcd")
	if _, err := s.client.Defragment(ctx, s.Endpoint()); err != nil {
		return fmt.Errorf("defragmenting: %w", err)
	}
	// etcd raises the alarm again at once if there still is no space.
	if _, err := s.client.AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil {
		return fmt.Errorf("disarming: %w", err)
	}
	return nil
}
