package postgres

import (
	"context"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestReach checks that connections to a server that does not answer are closed, and that new ones to this server fail at
// once until it answers again.
func TestReach(t *testing.T) {
	t.Parallel()
	for name, silence := range map[string]func(context.Context) error{
		"lost packets": func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		},
		"timeout of the dialer": func(ctx context.Context) error {
			dialing, cancel := context.WithTimeout(ctx, probeTimeout-time.Nanosecond)
			defer cancel()
			<-dialing.Done()
			return os.ErrDeadlineExceeded
		},
		"unreachable host": func(context.Context) error { return os.NewSyscallError("connect", syscall.EHOSTUNREACH) },
	} {
		t.Run(name, func(t *testing.T) { testReach(t, silence) })
	}
}

func testReach(t *testing.T, silence func(context.Context) error) {
	synctest.Test(t, func(t *testing.T) {
		const address, other = "192.0.2.1:5432", "192.0.2.2:5432"
		silent := false
		r := NewReach()
		r.connect = func(ctx context.Context, _, to string) (net.Conn, error) {
			if silent && to == address {
				return nil, silence(ctx)
			}
			client, server := net.Pipe()
			go func() { // the server closes its side when the client does
				_, _ = server.Read(make([]byte, 1))
				_ = server.Close()
			}()
			return client, nil
		}
		conn, err := r.dial(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		r.probeAll(t.Context())
		if r.Away() {
			t.Error("Away() with a server that answers = true, want false")
		}

		silent = true
		started := time.Now()
		r.probeAll(t.Context())
		if took := time.Since(started); took > probeFailures*probeTimeout {
			t.Errorf("a silent server was noticed after %s, want at most %s", took, probeFailures*probeTimeout)
		}
		if _, err := conn.Write([]byte{1}); err == nil {
			t.Error("write to a connection of a silent server = nil, want an error")
		}
		started = time.Now()
		if _, err := r.dial(t.Context(), "tcp", address); err == nil || !away(err) || time.Since(started) > 0 {
			t.Errorf("dial to a silent server = %v after %s, want an error at once that means that the database is away", err, time.Since(started))
		}
		if !r.Away() {
			t.Error("Away() with a silent server = false, want true")
		}

		// Another server of the database answers.
		second, err := r.dial(t.Context(), "tcp", other)
		if err != nil || r.Away() {
			t.Fatalf("dial to another server = %v, Away() = %t, want no error and false", err, r.Away())
		}
		started = time.Now()
		if _, err := r.dial(t.Context(), "tcp", address); err == nil || time.Since(started) > 0 {
			t.Errorf("dial to one silent server of two = %v after %s, want an error at once", err, time.Since(started))
		}
		if err := second.Close(); err != nil {
			t.Error(err)
		}

		silent = false
		r.probeAll(t.Context())
		if conn, err = r.dial(t.Context(), "tcp", address); err != nil {
			t.Fatalf("dial to a server that answers again = %v, want none", err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if len(r.servers) != 0 || r.Away() {
			t.Errorf("servers without connections = %v, want none", r.servers)
		}
	})
}
