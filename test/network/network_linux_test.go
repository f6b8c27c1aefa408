package network

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"open-cluster-management.io/hub-apiserver/test/await"
)

// exchange sends a byte from one node to a server on another one and back.
func exchange(t *testing.T, from *Node, address string, patience time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	connection, err := from.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	if err := connection.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := connection.Write([]byte{1}); err != nil {
		return err
	}
	_, err = io.ReadFull(connection, make([]byte, 1))
	return err
}

func TestNetwork(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("network namespaces require root")
	}
	n := New()
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	add := func(name string) *Node {
		node, err := n.Add(name)
		if err != nil {
			t.Fatal(err)
		}
		return node
	}
	server, client, other := add("server"), add("client"), add("other")
	var listener net.Listener
	if err := server.Do(func() (err error) {
		listener, err = net.Listen("tcp", server.Address+":80")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(connection, connection) }()
		}
	}()
	address := server.Address + ":80"
	reaches := func(from *Node) error { return exchange(t, from, address, await.Patience) }
	isCut := func(from *Node) {
		t.Helper()
		if err := exchange(t, from, address, 300*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("exchange over a cut link = %v, want a timeout", err)
		}
	}
	steps := []struct {
		name   string
		change func()
		cut    bool
	}{
		{"connected", func() {}, false},
		{"cut towards the server", func() { n.Set(client, server, Link{Cut: true}) }, true},
		{"cut towards the client", func() { n.Heal(); n.Set(server, client, Link{Cut: true}) }, true},
		{"lossy and slow", func() { n.SetBoth(client, server, Link{Loss: 0.2, Delay: 10 * time.Millisecond}) }, false},
		{"healed", n.Heal, false},
	}
	for _, step := range steps {
		step.change()
		if step.cut {
			isCut(client)
		} else if err := reaches(client); err != nil {
			t.Errorf("%s: exchange = %v, want none", step.name, err)
		}
		if err := reaches(other); err != nil {
			t.Errorf("%s: exchange over another link = %v, want none", step.name, err)
		}
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, own := range addresses {
		if own.String() == server.Address+"/24" {
			t.Errorf("addresses of this process = %v, want none of the network", addresses)
		}
	}
}
