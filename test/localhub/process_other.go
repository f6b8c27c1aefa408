//go:build unix && !linux

package localhub

import "syscall"

// childAttributes puts a child into a process group of its own, so that Ctrl-C
// in a terminal reaches only us and we stop the processes in order. Without
// Linux's parent-death signal, a child outlives us if we are killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
