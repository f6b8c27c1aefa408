package localhub

import "syscall"

// childAttributes makes a child die with us, and puts it into a process group
// of its own, so that Ctrl-C in a terminal reaches only us and we stop the
// processes in order.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
