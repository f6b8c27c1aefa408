package localhub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Slots is the number of control planes that the test programs of a machine run at a time, all together.
const Slots = 6

// slotsPatience is the maximum time to wait for slots: that of a run of all tests.
const slotsPatience = time.Hour

// demand is what a program needs: control planes that its tests share until it ends, and the control planes of its
// largest test.
type demand struct{ shared, most int }

// slots counts the slots of this program.
var slots struct {
	sync.Mutex
	demand            demand
	reserved, running int
	// files keeps the locks of the shared slots until the program ends.
	files []*os.File
}

// Reserve waits until n control planes may run in addition to all others of this machine, and reserves a slot for
// each. A test reserves its slots in one call: if tests that have some waited for more, all could wait for each
// other. The caller calls release when its control planes have stopped.
func Reserve(ctx context.Context, n int) (release func(), err error) {
	slots.Lock()
	own := slots.demand
	slots.Unlock()
	if own.shared == Slots {
		return func() {}, nil
	}
	if most := cmp.Or(own.most, Slots); n > most {
		return nil, fmt.Errorf("reserve %d control planes: the tests of this program may have %d", n, most)
	}
	files, err := lockSlots(ctx, n)
	if err != nil {
		return nil, err
	}
	addReserved(n)
	return func() { addReserved(-n); unlock(files) }, nil
}

func addReserved(n int) {
	slots.Lock()
	defer slots.Unlock()
	slots.reserved += n
}

// DeclareShared declares that the tests of this program share control planes, for which UseShared reserves slots. A
// program calls it before its first test. most is the number of slots that one of its tests reserves in addition.
func DeclareShared(shared, most int) error {
	if shared+most > Slots {
		return fmt.Errorf("%d shared control planes and %d of a test: there are only %d slots", shared, most, Slots)
	}
	slots.Lock()
	defer slots.Unlock()
	slots.demand = demand{shared, most}
	return nil
}

// UseShared reserves the shared slots until the program ends. The tests of a program that does not call it need no
// others than their own. UseShared waits until the programs with shared slots can end one after the other, whichever
// tests they have still to run: each finds slots for its largest test when those before it have ended (the banker's
// algorithm). A test with slots of its own must not call it, because UseShared may wait for these. The tests of a
// program with all slots do not reserve any.
func UseShared() error { return useShared() }

var useShared = sync.OnceValue(func() error {
	slots.Lock()
	own := slots.demand
	slots.Unlock()
	if own.shared == 0 {
		return errors.New("TestMain does not declare shared control planes: call framework.RunSharing or RunReserved")
	}
	ctx, cancel := context.WithTimeout(context.Background(), slotsPatience)
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(context.Context) (bool, error) { return enter(own) })
	if err != nil {
		return fmt.Errorf("reserve %d shared control planes: %w", own.shared, err)
	}
	files, err := lockSlots(ctx, own.shared)
	if err != nil {
		return err
	}
	slots.Lock()
	defer slots.Unlock()
	slots.files = append(slots.files, files...)
	slots.reserved += own.shared
	return nil
})

// ReserveShared does the same as DeclareShared and UseShared, for a program whose tests all use the shared control
// planes.
func ReserveShared(shared, most int) error {
	if err := DeclareShared(shared, most); err != nil {
		return err
	}
	return UseShared()
}

// enter adds the demand of this program to those of the running ones, if all can then end.
func enter(own demand) (bool, error) {
	mutex, err := lock(lockFile("programs"))
	if mutex == nil {
		return false, err
	}
	defer unlock([]*os.File{mutex})
	paths, err := filepath.Glob(lockFile("program-*"))
	if err != nil {
		return false, err
	}
	demands := []demand{own}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return false, err
		}
		file, err := lock(path)
		if err != nil {
			return false, err
		}
		if file != nil {
			// The program has ended.
			unlock([]*os.File{file})
			if err := os.Remove(path); err != nil {
				return false, err
			}
			continue
		}
		var other demand
		if _, err := fmt.Sscan(string(content), &other.shared, &other.most); err != nil {
			return false, fmt.Errorf("%s: %w", path, err)
		}
		demands = append(demands, other)
	}
	if !canEnd(demands) {
		return false, nil
	}
	file, err := lock(lockFile(fmt.Sprintf("program-%d", os.Getpid())))
	if err != nil || file == nil {
		return false, errors.Join(errors.New("the file of this program is locked"), err)
	}
	slots.Lock()
	slots.files = append(slots.files, file)
	slots.Unlock()
	_, err = fmt.Fprintln(file, own.shared, own.most)
	return err == nil, err
}

// canEnd reports whether programs can end one after the other, each when there are slots for its largest test.
func canEnd(demands []demand) bool {
	demands = slices.SortedFunc(slices.Values(demands), func(a, b demand) int { return cmp.Compare(a.most, b.most) })
	free := Slots
	for _, c := range demands {
		free -= c.shared
	}
	for _, c := range demands {
		if free < c.most {
			return false
		}
		free += c.shared
	}
	return free >= 0
}

// lockSlots waits until n slots are free at once, and locks them.
func lockSlots(ctx context.Context, n int) (files []*os.File, err error) {
	ctx, cancel := context.WithTimeout(ctx, slotsPatience)
	defer cancel()
	err = wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(context.Context) (bool, error) {
		for i := 0; i < Slots && len(files) < n; i++ {
			file, err := lock(lockFile(fmt.Sprintf("slot-%d", i)))
			if err != nil {
				return false, err
			}
			if file != nil {
				files = append(files, file)
			}
		}
		if len(files) < n {
			unlock(files)
			files = nil
		}
		return len(files) == n, nil
	})
	if err != nil {
		unlock(files)
		return nil, fmt.Errorf("wait for %d of the %d slots of this machine for control planes: %w", n, Slots, err)
	}
	return files, nil
}

func lockFile(name string) string { return filepath.Join(os.TempDir(), "localhub-"+name+".lock") }

// lock locks a file, or returns nil if another program or test has locked it. The kernel releases the lock when the
// program ends, however it ends.
func lock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, err
	}
	return file, nil
}

func unlock(files []*os.File) {
	for _, file := range files {
		_ = file.Close()
	}
}

// slot counts one control plane of a test while it runs.
type slot struct{ taken bool }

// take fails in a test program whose control planes would exceed its reserved slots.
func (s *slot) take() error {
	slots.Lock()
	defer slots.Unlock()
	if s.taken || !testing.Testing() {
		return nil
	}
	if slots.running >= slots.reserved {
		return fmt.Errorf("%d control planes would run, but the tests have reserved %d: call framework.Slots first", slots.running+1, slots.reserved)
	}
	slots.running++
	s.taken = true
	return nil
}

// leave is the opposite of take.
func (s *slot) leave() {
	slots.Lock()
	defer slots.Unlock()
	if s.taken {
		slots.running--
	}
	s.taken = false
}
