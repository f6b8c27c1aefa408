package postgrestest

import (
	"os/exec"
	"runtime"
	"syscall"
)

// restrict runs a command in its own process group and as its owner, and ends it with this process:
// after SIGQUIT, PostgreSQL and all its children stop immediately.
func restrict(command *exec.Cmd, owner *identity) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGQUIT}
	if owner != nil {
		command.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(owner.uid), Gid: uint32(owner.gid)}
	}
}

// startBound starts a command with run and closes exited when it has ended. It uses its own thread, because
// Pdeathsig is sent when the thread that started the command ends.
func startBound(command *exec.Cmd, run func(start func() error) error, exited chan<- struct{}) error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := run(command.Start)
		started <- err
		if err == nil {
			// The log contains the reason why the command ended.
			_ = command.Wait()
			close(exited)
		}
	}()
	return <-started
}
