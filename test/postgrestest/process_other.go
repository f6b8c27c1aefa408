//go:build !linux

package postgrestest

import "syscall"

func bind(*syscall.SysProcAttr) {}
