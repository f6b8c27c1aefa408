package etcd

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

const (
	maintenancePeriod  = 5 * time.Minute
	maintenanceTimeout = time.Minute

	// defragmentAboveBytes is the minimum free space for a defragmentation, in addition to half of the database.
	defragmentAboveBytes = 64 << 20
)

// Maintain keeps the database small until ctx ends. The API server compacts old revisions at the interval
// --etcd-compaction-interval. Maintain returns the free space to the file system, and disarms the alarm
// that blocks writes when there is space again.
func (s *Server) Maintain(ctx context.Context) {
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, maintenanceTimeout)
		defer cancel()
		if err := s.maintain(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Maintenance of the embedded etcd failed")
		}
	}, maintenancePeriod, 0.1, true)
}

func (s *Server) maintain(ctx context.Context) error {
	status, err := s.client.Status(ctx, s.Endpoint())
	if err != nil {
		return fmt.Errorf("status: %w", err)
	}
	alarms, err := s.client.AlarmList(ctx)
	if err != nil {
		return fmt.Errorf("alarms: %w", err)
	}
	outOfSpace := false
	for _, alarm := range alarms.Alarms {
		outOfSpace = outOfSpace || alarm.Alarm == etcdserverpb.AlarmType_NOSPACE
	}

	free := status.DbSize - status.DbSizeInUse
	if !outOfSpace && (free < defragmentAboveBytes || free < status.DbSize/2) {
		return nil
	}
	klog.FromContext(ctx).Info("Defragmenting the embedded etcd", "bytes", status.DbSize, "inUse", status.DbSizeInUse, "outOfSpace", outOfSpace)
	if _, err := s.client.Defragment(ctx, s.Endpoint()); err != nil {
		return fmt.Errorf("defragmenting: %w", err)
	}
	for _, alarm := range alarms.Alarms {
		if alarm.Alarm != etcdserverpb.AlarmType_NOSPACE {
			continue
		}
		// etcd raises the alarm again at once if there still is no space.
		if _, err := s.client.AlarmDisarm(ctx, (*clientv3.AlarmMember)(alarm)); err != nil {
			return fmt.Errorf("disarming: %w", err)
		}
	}
	return nil
}
