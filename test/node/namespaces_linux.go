package node

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// namespace is an open namespace. It exists until it is closed and its last process has ended.
type namespace struct {
	*os.File
	flag int
}

// namespaceNames are the names of namespaces in /proc.
var namespaceNames = map[int]string{
	unix.CLONE_NEWNET: "net", unix.CLONE_NEWUTS: "uts", unix.CLONE_NEWPID: "pid", unix.CLONE_NEWNS: "mnt",
}

// namespacesOf opens namespaces of a process, which is self, thread-self or a number.
func namespacesOf(process string, flags ...int) (out []namespace, err error) {
	for _, flag := range flags {
		file, err := os.Open("/proc/" + process + "/ns/" + namespaceNames[flag])
		if err != nil {
			return nil, errors.Join(err, closeAll(out))
		}
		out = append(out, namespace{file, flag})
	}
	return out, nil
}

func closeAll(spaces []namespace) error {
	var errs []error
	for _, space := range spaces {
		errs = append(errs, space.Close())
	}
	return errors.Join(errs...)
}

// newNamespaces creates network and UTS namespaces with a host name.
func newNamespaces(host string) (out []namespace, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The thread ends with this goroutine, because it is not unlocked.
		runtime.LockOSThread()
		if err = unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWUTS); err != nil {
			err = fmt.Errorf("create namespaces: %w", err)
			return
		}
		if err = unix.Sethostname([]byte(host)); err == nil {
			out, err = namespacesOf("thread-self", unix.CLONE_NEWNET, unix.CLONE_NEWUTS)
		}
	}()
	<-done
	return out, err
}

// within calls run in namespaces. Processes that run starts stay there. With a mount namespace, the thread ends with
// the goroutine of the caller.
func within(spaces []namespace, run func() error) error {
	runtime.LockOSThread()
	flags := make([]int, len(spaces))
	for i, space := range spaces {
		flags[i] = space.flag
	}
	own, err := namespacesOf("thread-self", flags...)
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer func() { _ = closeAll(own) }()
	dirty := false
	enter := func(spaces []namespace) error {
		for _, space := range spaces {
			if space.flag == unix.CLONE_NEWNS {
				// The kernel requires that the thread shares its root directory with no other one.
				dirty = true
				if err := unix.Unshare(unix.CLONE_FS); err != nil {
					return err
				}
			}
			if err := unix.Setns(int(space.Fd()), space.flag); err != nil {
				return fmt.Errorf("enter the %s namespace: %w", namespaceNames[space.flag], err)
			}
		}
		return nil
	}
	if err = enter(spaces); err == nil {
		err = run()
	}
	if back := enter(own); back != nil {
		return errors.Join(err, back)
	}
	if !dirty {
		runtime.UnlockOSThread()
	}
	return err
}
