package postgres

import (
	"context"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestReach checks that connections to a database fail at once while none of its servers answers. The kernel closes those
// that exist: test/campaign checks that.
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
	config, err := pgx.ParseConfig("host=192.0.2.1,192.0.2.2 sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		silent := map[string]bool{}
		r := NewReach()
		r.connect = func(ctx context.Context, _, address string) (net.Conn, error) {
			if silent[address] {
				return nil, silence(ctx)
			}
			client, server := net.Pipe()
			return client, server.Close()
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.run(ctx, config)
		dial := func(what string, fails bool) {
			t.Helper()
			time.Sleep(2 * probeFailures * (2*probeTimeout + probePeriod)) // of the fake clock
			synctest.Wait()
			started := time.Now()
			conn, err := r.dial(ctx, "tcp", "192.0.2.2:5432")
			if err == nil {
				_ = conn.Close()
			}
			if fails != (err != nil) || fails != r.Away() || fails && !away(err) || time.Since(started) > 0 {
				t.Errorf("dial with %s = %v after %s, Away() = %t, want failure %t at once", what, err, time.Since(started), r.Away(), fails)
			}
		}
		dial("servers that answer", false)
		silent["192.0.2.1:5432"] = true
		dial("a server that answers", false)
		silent["192.0.2.2:5432"] = true
		dial("silent servers", true)
		delete(silent, "192.0.2.2:5432")
		dial("a server that answers again", false)
	})
}
