package postgres

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// silentServer listens without accepting connections. When its queue is full, the kernel drops the packets of further
// attempts. The function accepts what waits, and everything later.
func silentServer(t *testing.T) (address string, answer func()) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(err)
	must(unix.Bind(socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	must(unix.Listen(socket, 0))
	name, err := unix.Getsockname(socket)
	must(err)
	ended := make(chan struct{})
	started := false
	t.Cleanup(func() {
		_ = unix.Shutdown(socket, unix.SHUT_RDWR) // ends accept
		if started {
			<-ended
		}
		_ = unix.Close(socket)
	})
	return fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port), func() {
		started = true
		go func() {
			defer close(ended)
			for {
				conn, _, err := unix.Accept(socket)
				if err != nil {
					return
				}
				_ = unix.Close(conn)
			}
		}()
	}
}

// TestReach checks that connections to a server that does not answer are closed, and that new ones fail at once until
// the server answers again.
func TestReach(t *testing.T) {
	t.Parallel()
	address, answer := silentServer(t)
	r := NewReach()
	dial := func() (net.Conn, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return r.dial(ctx, "tcp", address)
	}
	conn, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	for err == nil { // fill the queue
		_, err = dial()
	}
	if server := r.servers[address]; server == nil || server.failures > 0 {
		t.Fatalf("state of the server before a probe = %v, want no failures", server)
	}
	r.probeAll(t.Context())
	if _, err := conn.Write([]byte{1}); err == nil {
		t.Error("write to a connection of a silent server = nil, want an error")
	}
	if _, err := r.dial(t.Context(), "tcp", address); err == nil || !away(err) {
		t.Errorf("dial to a silent server = %v, want an error at once that means that the database is away", err)
	}

	if !r.Away() {
		t.Error("Away() with a silent server = false, want true")
	}

	answer()
	deadline := time.Now().Add(time.Minute)
	for r.probeAll(t.Context()); ; r.probeAll(t.Context()) {
		// The kernel drops packets for another moment.
		if conn, err := dial(); err == nil {
			_ = conn.Close()
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("dial to a server that answers again = %v, want none", err)
		}
	}
	if len(r.servers) != 0 || r.Away() {
		t.Errorf("servers without connections = %v, want none", r.servers)
	}
}
