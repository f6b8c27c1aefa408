package console

import (
	"net"
	"net/netip"
	"os"
	"testing"
)

func TestPeerUser(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	connection, err := net.Dial("tcp4", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	peer, local := netip.MustParseAddrPort(connection.LocalAddr().String()), netip.MustParseAddrPort(listener.Addr().String())
	if uid, known := peerUser(peer, local); !known || uid != os.Getuid() {
		t.Errorf("peerUser(%s, %s) = %d, %t, want %d, true", peer, local, uid, known, os.Getuid())
	}
	if uid, known := peerUser(local, netip.MustParseAddrPort("127.0.0.1:1")); known {
		t.Errorf("peerUser of no connection = %d, want that it is unknown", uid)
	}
	if got := tableAddress(local, true); len(got) != 32+5 {
		t.Errorf("tableAddress(%s, true) = %s, want 16 bytes and a port", local, got)
	}
}
