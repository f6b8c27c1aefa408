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
func lock(ctx context.Context, dataDir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dataDir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the data directory: %w", err)
	}
	waiting := false
	err = wait.PollUntilContextCancel(ctx, lockPeriod, true, func(ctx context.Context) (bool, error) {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return err == nil, err
		}
		if !waiting {
			waiting = true
			klog.FromContext(ctx).Info("Waiting for another process to unlock the data directory", "directory", dataDir, "process", holder(file))
		}
		return false, nil
	})
	if err != nil && waiting {
		err = fmt.Errorf("process %s is using %s", holder(file), dataDir)
	}
	if err == nil {
		err = writeHolder(file)
	}
	if err != nil {
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
	if err == nil {
		return file, nil
	}
	closed := file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, closed
	}
	return nil, errors.Join(fmt.Errorf("locking the data directory: %w", err), closed)
}

func holder(file *os.File) string {
	content, err := io.ReadAll(io.NewSectionReader(file, 0, 32))
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
