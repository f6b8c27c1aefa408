package hostile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

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
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.process.PID()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kilobytes, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kilobytes << 10, err
		}
	}
	return 0, errors.New("the process has ended")
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
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the name in parentheses, which may contain spaces.
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	values := strings.Fields(string(rest))
	if len(values) < 15 {
		return 0, fmt.Errorf("/proc/%d/stat: %q", pid, stat)
	}
	var ticks int64
	for _, value := range values[11:15] { // utime, stime, cutime, cstime
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}
