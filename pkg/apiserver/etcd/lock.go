package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

const (
	lockFile   = "lock"
	lockPeriod = 100 * time.Millisecond
)

// lock locks the data directory until the file is closed or the process ends. Until ctx ends, it waits for
// another process that is stopping. etcd itself would wait forever and log nothing.
func lock(ctx context.Context, dataDir string) (file *os.File, err error) {
	waiting := false
	err = wait.PollUntilContextCancel(ctx, lockPeriod, true, func(ctx context.Context) (bool, error) {
		var err error
		if file, err = tryLock(dataDir); file == nil && err == nil && !waiting {
			waiting = true
			klog.FromContext(ctx).Info("Waiting for another process to unlock the data directory", "directory", dataDir, "process", holder(dataDir))
		}
		return file != nil, err
	})
	switch {
	case err != nil && waiting:
		return nil, fmt.Errorf("locking the data directory: process %s is using %s", holder(dataDir), dataDir)
	case err != nil:
		return nil, err
	}
	if err := writeHolder(file); err != nil {
		return nil, errors.Join(fmt.Errorf("locking the data directory: %w", err), file.Close())
	}
	return file, nil
}

// tryLock locks the data directory without changing it, or returns nil if another process has locked it.
func tryLock(dataDir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dataDir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the data directory: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case err == nil:
		return file, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		return nil, file.Close()
	}
	return nil, errors.Join(fmt.Errorf("locking the data directory: %w", err), file.Close())
}

// holder returns the process that has locked the data directory.
func holder(dataDir string) string {
	content, err := os.ReadFile(filepath.Join(dataDir, lockFile))
	if err != nil || len(content) == 0 {
		return "(unknown)"
	}
	return strings.TrimSpace(string(content))
}

func writeHolder(file *os.File) error {
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err := fmt.Fprintln(io.NewOffsetWriter(file, 0), os.Getpid())
	return err
}
