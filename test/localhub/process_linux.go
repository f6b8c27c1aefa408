package localhub

import "syscall"

// childAttributes returns attributes with which the kernel kills a child when this process
// ends. The child is in a separate process group, so that Ctrl-C in a terminal signals only
// this process, which stops the children in order.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
