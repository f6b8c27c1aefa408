//go:build !linux

package postgres

import "syscall"

// boundSilence does nothing: only Linux has a portable bound.
func boundSilence(_, _ string, _ syscall.RawConn) error { return nil }
