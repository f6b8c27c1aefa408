package postgres

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// boundSilence makes the kernel close a connection on which sent data is not acknowledged. Without it, the kernel sends
// the data again for many minutes.
func boundSilence(network, _ string, conn syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	var failed error
	err := conn.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silenceTimeout.Milliseconds()))
	})
	if err != nil {
		return err
	}
	return failed
}
