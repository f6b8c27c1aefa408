// Package child starts programs that end with the test program that starts them.
package child

import (
	"os/exec"
	"runtime"
	"syscall"
)

// Start starts a command. run, if it is not nil, calls its argument, such as on another host. The command is in a process group of its own,
// so that Ctrl-C in a terminal signals only this program. On Linux, the command receives the signal when this program
// ends, however it ends. The returned channel delivers the error of Wait.
func Start(command *exec.Cmd, signal syscall.Signal, run func(start func() error) error) (ended <-chan error, err error) {
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{}
	}
	command.SysProcAttr.Setpgid = true
	bind(command.SysProcAttr, signal)
	if run == nil {
		run = func(start func() error) error { return start() }
	}
	started, waited := make(chan error, 1), make(chan error, 1)
	go func() {
		// The kernel sends the signal when the thread that forked the command ends. The thread must therefore live as
		// long as the command.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := run(command.Start)
		started <- err
		if err == nil {
			waited <- command.Wait()
		}
	}()
	return waited, <-started
}
