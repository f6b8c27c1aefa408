//go:build !linux

package postgrestest

import (
	"os/exec"
	"syscall"
)

// restrict runs a command in its own process group and as its owner.
func restrict(command *exec.Cmd, owner *identity) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if owner != nil {
		command.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(owner.uid), Gid: uint32(owner.gid)}
	}
}

// startBound starts a command with run and closes exited when it has ended.
func startBound(command *exec.Cmd, run func(start func() error) error, exited chan<- struct{}) error {
	if err := run(command.Start); err != nil {
		return err
	}
	go func() {
		// The log contains the reason why the command ended.
		_ = command.Wait()
		close(exited)
	}()
	return nil
}
