package keepalive

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

func TestUse(t *testing.T) {
	for name := range timeouts {
		t.Setenv(name, "")
	}
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "7")
	if err := Use(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "5", "HTTP2_PING_TIMEOUT_SECONDS": "7"} {
		if got := os.Getenv(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
}

// network connects clients to a server. It drops what clients send while it is down.
type network struct {
	connections chan net.Conn
	closing     sync.Once
	down        atomic.Bool
}

func (n *network) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	n.connections <- server
	return &connection{Conn: client, network: n}, nil
}

// Accept implements net.Listener.
func (n *network) Accept() (net.Conn, error) {
	if c, ok := <-n.connections; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (n *network) Close() error {
	n.closing.Do(func() { close(n.connections) })
	return nil
}

// Addr implements net.Listener.
func (n *network) Addr() net.Addr { return &net.TCPAddr{} }

type connection struct {
	net.Conn
	network *network
}

func (c *connection) Write(b []byte) (int, error) {
	if c.network.down.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// TestHangIsNoticed checks that a watch ends within 10 seconds after the network begins to drop all packets, and not while
// the server just has nothing to send.
func TestHangIsNoticed(t *testing.T) {
	for name := range timeouts {
		t.Setenv(name, "")
	}
	if err := Use(); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		wire := &network{connections: make(chan net.Conn)}
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}))
		_ = server.Listener.Close()
		server.Listener, server.EnableHTTP2 = wire, true
		server.StartTLS()
		defer server.Close()
		server.TLS.SessionTicketsDisabled = true // the pipe does not buffer them
		client, err := rest.HTTPClientFor(&rest.Config{Host: server.URL, Dial: wire.dial, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
		if err != nil {
			t.Fatal(err)
		}
		defer client.CloseIdleConnections()
		response, err := client.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan time.Time, 1)
		go func() {
			_, _ = response.Body.Read(make([]byte, 1))
			ended <- time.Now()
		}()
		time.Sleep(time.Hour)
		select {
		case <-ended:
			t.Error("an idle watch ended, want it to continue")
		default:
		}
		wire.down.Store(true)
		began := time.Now()
		if after := (<-ended).Sub(began); response.ProtoMajor != 2 || after > 10*time.Second {
			t.Errorf("a watch by HTTP/%d ended %s after the network was lost, want HTTP/2 and 10s at most", response.ProtoMajor, after)
		}
	})
}
