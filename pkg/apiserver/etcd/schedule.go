package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

const (
	snapshotPrefix = "hub-apiserver-"
	snapshotSuffix = ".db"
	// snapshotTime is the format of the time in the name of a snapshot, in UTC. Names sort by time.
	snapshotTime = "20060102T150405Z"
	// newSnapshot is the name of a snapshot before it is complete.
	newSnapshot = "." + snapshotPrefix + "new" + snapshotSuffix

	// snapshotDeadline bounds one snapshot. firstSnapshotRetry and lastSnapshotRetry bound the delay after
	// a failure.
	snapshotDeadline   = 30 * time.Minute
	firstSnapshotRetry = time.Minute
	lastSnapshotRetry  = time.Hour
)

type Schedule struct {
	// Interval is the time between two snapshots. 0 means none.
	Interval time.Duration
	// Dir is the directory of the snapshots, and Keep their number.
	Dir  string
	Keep int
}

// SaveSnapshots saves snapshots by the schedule until ctx ends. After a restart, the next one is due an
// interval after the last.
func (s *Server) SaveSnapshots(ctx context.Context) {
	intervalGauge.Set(s.options.Snapshots.Interval.Seconds())
	if s.options.Snapshots.Interval == 0 {
		return
	}
	loop := reconcile.Loop{
		Name: "embedded-etcd-snapshots", Initial: []cache.ObjectName{{Name: s.options.Snapshots.Dir}},
		Timeout: snapshotDeadline, FirstRetry: firstSnapshotRetry, LastRetry: lastSnapshotRetry,
		Dispensable: true, // a directory on a network file system that hangs must not make the server unready
		Reconcile: func(ctx context.Context, _ cache.ObjectName) (time.Duration, error) {
			last, err := s.options.Snapshots.observe()
			if left := time.Until(last.Add(s.options.Snapshots.Interval)); err == nil && left > 0 {
				return left, nil
			}
			if err == nil {
				err = s.options.Snapshots.save(ctx, s.options.DataDir, time.Now())
			}
			if err != nil {
				failuresCounter.Inc()
				return 0, fmt.Errorf("saving a snapshot of the embedded etcd: %w", err)
			}
			return time.Millisecond, nil // the metrics show the snapshot
		},
	}
	loop.Run(ctx)
}

// save saves a snapshot and deletes the oldest.
func (s Schedule) save(ctx context.Context, dataDir string, now time.Time) error {
	file, fresh := filepath.Join(s.Dir, nameAt(now)), filepath.Join(s.Dir, newSnapshot)
	status, err := SaveSnapshot(ctx, dataDir, fresh, true)
	if err != nil {
		return err
	}
	if err := os.Rename(fresh, file); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Saved a snapshot of the embedded etcd", "file", file, "revision", status.Revision, "bytes", status.SizeBytes)
	names, err := s.list(now)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names[:max(len(names)-s.Keep, 0)] {
		errs = append(errs, os.Remove(filepath.Join(s.Dir, name)))
	}
	return errors.Join(errs...)
}

// observe sets the metrics of the last snapshot, and returns its time, or the zero time if it is unknown. It creates the
// directory.
func (s Schedule) observe() (time.Time, error) {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return time.Time{}, err
	}
	now := time.Now()
	names, err := s.list(now)
	if err != nil || len(names) == 0 {
		return time.Time{}, err
	}
	last := names[len(names)-1]
	info, err := os.Stat(filepath.Join(s.Dir, last))
	if err != nil {
		return time.Time{}, err
	}
	bytesGauge.Set(float64(info.Size()))
	at, err := timeOf(last)
	if err != nil {
		return time.Time{}, err
	}
	if at.After(now) { // and so are the names of all others
		at = info.ModTime()
	}
	if at.After(now) { // the age of the snapshots is unknown
		lastGauge.Set(0)
		return time.Time{}, nil
	}
	lastGauge.Set(float64(at.Unix()))
	return at, nil
}

// list returns the names of the snapshots of the schedule, the oldest first. A snapshot with a name after now was saved
// before the clock was set back, so it is older than the others.
func (s Schedule) list(now time.Time) ([]string, error) {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		if _, err := timeOf(entry.Name()); err == nil && entry.Type().IsRegular() {
			names = append(names, entry.Name())
		}
	}
	slices.Sort(names)
	later, found := slices.BinarySearch(names, nameAt(now))
	if found {
		later++
	}
	return slices.Concat(names[later:], names[:later]), nil
}

func nameAt(at time.Time) string {
	return snapshotPrefix + at.UTC().Format(snapshotTime) + snapshotSuffix
}

func timeOf(name string) (time.Time, error) {
	return time.Parse(snapshotPrefix+snapshotTime+snapshotSuffix, name)
}
