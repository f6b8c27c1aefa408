//go:build unix && !linux

package localhub

import "syscall"

// childAttributes returns attributes that put a child into a separate process group, so that
// Ctrl-C in a terminal signals only this process, which stops the children in order. Without
// Linux's parent-death signal, a child continues if this process is killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
