package bench_test

import (
	"errors"
	"io/fs"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// sampleInterval is the interval between samples of the memory of a process.
const sampleInterval = 200 * time.Millisecond

// memorySampler samples the resident memory of a process.
type memorySampler struct {
	mu        sync.Mutex
	sum, most float64
	count     int

	stopping, stopped chan struct{}
}

// sampleMemory samples until stop is called, or the process ends.
func sampleMemory(pid int) *memorySampler {
	m := &memorySampler{stopping: make(chan struct{}), stopped: make(chan struct{})}
	go func() {
		defer close(m.stopped)
		tick := time.NewTicker(sampleInterval)
		defer tick.Stop()
		for {
			mb, err := residentMemory(pid)
			if err != nil {
				return
			}
			m.mu.Lock()
			m.sum, m.most, m.count = m.sum+mb, max(m.most, mb), m.count+1
			m.mu.Unlock()
			select {
			case <-tick.C:
			case <-m.stopping:
				return
			}
		}
	}()
	return m
}

// take returns the mean and the maximum in MiB since the previous call.
func (m *memorySampler) take() (mean, most float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mean, most = m.sum/float64(max(1, m.count)), m.most
	m.sum, m.most, m.count = 0, 0, 0
	return mean, most
}

func (m *memorySampler) stop() {
	close(m.stopping)
	<-m.stopped
}

// directorySize returns the size of the files in a directory in MiB, which may change meanwhile.
func directorySize(b *testing.B, dir string) float64 {
	b.Helper()
	bytes := int64(0)
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return float64(bytes) / (1 << 20)
}
