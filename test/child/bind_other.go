//go:build unix && !linux

package child

import "syscall"

func bind(*syscall.SysProcAttr, syscall.Signal) {}
