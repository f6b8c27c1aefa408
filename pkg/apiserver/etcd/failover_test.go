package etcd

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// silentListener accepts connections and never answers, as the kernel does for a stopped process.
func silentListener(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}

// open reports whether nothing has closed a connection within some probes.
func open(t *testing.T, conn net.Conn, patience time.Duration) bool {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	_, err := conn.Read(make([]byte, 1))
	if err == nil || errors.Is(err, io.EOF) {
		t.Fatalf("Read() = %v, want no answer", err)
	}
	return !errors.Is(err, net.ErrClosed)
}

func TestFailover(t *testing.T) {
	f := NewFailover()
	dial := func(address string) net.Conn {
		conn, err := f.dial(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	silent, other := silentListener(t), silentListener(t)
	var isolated atomic.Int64
	run := func(members ...string) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			f.Run(ctx, connect(t, members...), func() { isolated.Add(1) })
		}()
		return func() { cancel(); <-ended }
	}

	silentURL := "http://" + silent

	// Without a member that responds, connections stay.
	toSilent := dial(silent)
	stop := run(silentURL)
	if !open(t, toSilent, (probeFailures+1)*(probePeriod+probeTimeout)) {
		t.Error("the connection to the only member was closed, want it open")
	}
	stop()
	if n := isolated.Load(); n != 1 {
		t.Errorf("calls of isolated = %d, want 1", n)
	}

	responds := start(t, filepath.Join(t.TempDir(), "data"))
	toOther := dial(other)
	stop = run(silentURL, responds.Endpoint())
	defer stop()
	if open(t, toSilent, time.Minute) {
		t.Error("the connection to a silent member is open, want it closed, because another member responds")
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := f.dial(short, "tcp", silent); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("dial() to a silent member = %v, want it to wait until the member responds", err)
	}
	if n := isolated.Load(); n != 1 {
		t.Errorf("calls of isolated while a member responds = %d, want none", n-1)
	}
	if !open(t, toOther, 10*time.Millisecond) {
		t.Error("the connection to another address was closed, want it open")
	}
}

func TestRedundant(t *testing.T) {
	for servers, want := range map[[2]string]bool{
		{"https://a:2379", "https://b:2379"}: true,
		{"http://a:2379", "unix:///b"}:       false,
	} {
		if got := Redundant(servers[:]); got != want {
			t.Errorf("Redundant(%q) = %t, want %t", servers, got, want)
		}
	}
	if Redundant([]string{"https://a:2379"}) {
		t.Error("Redundant() of one member = true, want false")
	}
}
