package postgrestest

import (
	"os/exec"
	"runtime"
	"syscall"
)

// restrict gives a command a process group of its own and its owner, and has it end
// with this process: SIGQUIT has PostgreSQL stop at once with all its children.
func restrict(command *exec.Cmd, owner *identity) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGQUIT}
	if owner != nil {
		command.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(owner.uid), Gid: uint32(owner.gid)}
	}
}

// startBound starts a command and closes exited when it has ended. It does so from a thread of its
// own, because the signal of Pdeathsig comes when the thread that started the command ends.
func startBound(command *exec.Cmd, exited chan<- struct{}) error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		started <- err
		if err == nil {
			// How it ends is in its log.
			_ = command.Wait()
			close(exited)
		}
	}()
	return <-started
}
