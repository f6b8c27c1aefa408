package localhub

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// clockCode replaces clock_gettime in the vDSO of one process: it makes the system call, and adds a number of seconds to
// the answer for CLOCK_REALTIME. The last four bytes before the return are the number. It is for amd64.
//
//	mov eax, 228; syscall; test eax, eax; jnz end; test edi, edi; jnz end; add qword [rsi], seconds; end: ret
var clockCode = []byte{0xb8, 228, 0, 0, 0, 0x0f, 0x05, 0x85, 0xc0, 0x75, 0x0b, 0x85, 0xff, 0x75, 0x07, 0x48, 0x81, 0x06, 0, 0, 0, 0, 0xc3}

const clockOffset = 18 // of the seconds in clockCode

// ShiftClock changes the wall clock of the running process: it reads the time of this machine plus offset from now
// on. The clock of the machine and of other processes, and the monotonic clock, do not change. A restart of the
// process ends it. Go reads the time with a function of the vDSO, which the kernel maps into each process; a copy of
// its page belongs to the process alone once it is written.
func (p *Process) ShiftClock(offset time.Duration) error {
	if runtime.GOARCH != "amd64" {
		return fmt.Errorf("shift the clock of %s: %w on %s", p.Name, errors.ErrUnsupported, runtime.GOARCH)
	}
	if err := p.shiftClock(int32(offset / time.Second)); err != nil {
		return fmt.Errorf("shift the clock of %s: %w", p.Name, err)
	}
	return nil
}

func (p *Process) shiftClock(seconds int32) error {
	pid := p.PID()
	first, size, err := vdso(pid)
	if err != nil {
		return err
	}
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = memory.Close() }()
	image := make([]byte, size)
	if _, err := memory.ReadAt(image, first); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	function, err := clockFunction(image)
	if err != nil {
		return err
	}
	code := bytes.Clone(clockCode)
	binary.LittleEndian.PutUint32(code[clockOffset:], uint32(seconds))
	// No thread may be in the function while it changes.
	deadline := time.Now().Add(5 * time.Second)
	for {
		if err := p.Pause(); err != nil {
			return err
		}
		busy, err := inside(pid, first, first+size)
		if err == nil && !busy {
			_, err = memory.WriteAt(code, first+function)
			return errors.Join(err, p.Continue())
		}
		if err := errors.Join(err, p.Continue()); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return errors.New("a thread is always reading the clock")
		}
		time.Sleep(time.Millisecond)
	}
}

// vdso returns the address and the size of the vDSO of a process.
func vdso(pid int) (first, size int64, err error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(content)) {
		if strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			var last int64
			_, err := fmt.Sscanf(line, "%x-%x", &first, &last)
			return first, last - first, err
		}
	}
	return 0, 0, errors.New("the process has no vDSO")
}

// clockFunction returns the offset of clock_gettime in the vDSO.
func clockFunction(image []byte) (int64, error) {
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, fmt.Errorf("vDSO: %w", err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return 0, fmt.Errorf("vDSO: %w", err)
	}
	for _, symbol := range symbols {
		if symbol.Name == "__vdso_clock_gettime" {
			return int64(symbol.Value), nil
		}
	}
	return 0, errors.New("the vDSO has no clock_gettime")
}

// inside waits until all threads of a process are stopped, and reports whether one is stopped in a range of addresses.
func inside(pid int, first, last int64) (bool, error) {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return false, err
	}
	for _, thread := range threads {
		content, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/syscall", pid, thread.Name()))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue
		}
		if err != nil {
			return false, err
		}
		fields := strings.Fields(string(content))
		if len(fields) < 2 { // running, so not stopped yet
			return true, nil
		}
		var at int64
		if _, err := fmt.Sscanf(fields[len(fields)-1], "0x%x", &at); err != nil {
			return false, err
		}
		if first <= at && at < last {
			return true, nil
		}
	}
	return false, nil
}
