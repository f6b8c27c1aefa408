package hostile

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/procfs"

	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// tick is the unit of CPU times in /proc.
const tick = 10 * time.Millisecond

// meter measures the CPU time and the memory of a process.
type meter struct {
	process *localhub.Process
	// busy is the share of a CPU that the process needs when it is idle. memory is its maximum
	// memory when it handles usual requests.
	busy   float64
	memory int64

	began time.Time
	cpu   time.Duration
}

// start begins a measurement.
func (m *meter) start() error {
	cpu, err := cpuTime(m.process.PID())
	if err != nil {
		return err
	}
	m.began, m.cpu = time.Now(), cpu
	// The kernel resets the peak of the memory.
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", m.process.PID()), []byte("5"), 0)
}

// used returns the CPU time since start, minus the CPU time of the idle process.
func (m *meter) used() (time.Duration, error) {
	cpu, err := cpuTime(m.process.PID())
	if err != nil {
		return 0, err
	}
	return max(0, cpu-m.cpu-time.Duration(m.busy*float64(time.Since(m.began)))), nil
}

// peak returns the maximum memory of the process since start.
func (m *meter) peak() (int64, error) {
	proc, err := procfs.NewProc(m.process.PID())
	if err != nil {
		return 0, err
	}
	status, err := proc.NewStatus()
	if err == nil && status.VmHWM == 0 {
		err = errors.New("the process has ended")
	}
	return int64(status.VmHWM), err
}

// settle waits until the process is idle again. It returns false if the process has used more CPU
// time than the limit, or if more time than the limit has passed.
func (m *meter) settle(limit time.Duration) (idle bool, err error) {
	const pause = 50 * time.Millisecond
	began, before := time.Now(), m.cpu
	for {
		used, err := m.used()
		if err != nil {
			return false, err
		}
		cpu, err := cpuTime(m.process.PID())
		if err != nil {
			return false, err
		}
		if before != m.cpu && cpu-before <= time.Duration(m.busy*float64(pause))+2*tick {
			return true, nil
		}
		if used > limit || time.Since(began) > limit {
			return false, nil
		}
		if before = cpu; before == m.cpu {
			before--
		}
		time.Sleep(pause)
	}
}

// cpuTime returns the CPU time of a process and of the children for which it has waited.
func cpuTime(pid int) (time.Duration, error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	stat, err := proc.Stat()
	return tick * time.Duration(int(stat.UTime+stat.STime)+stat.CUTime+stat.CSTime), err
}
