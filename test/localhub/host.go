package localhub

import (
	"context"
	"net"

	"k8s.io/client-go/rest"
)

// loopback is the address of the servers of this machine. It is an address, because localhost can resolve to ::1,
// where another process may listen.
const loopback = "127.0.0.1"

// Host is a machine on which processes run, such as a node of test/network. A nil Host is this machine, on which all
// servers listen on 127.0.0.1.
type Host struct {
	// Address is the IP address of the servers on the host.
	Address string
	// Run calls a function that starts a process, such that the process runs on the host.
	Run func(start func() error) error
	// Contained means that Run starts processes in another PID namespace, which ends with this program. Go cannot
	// set a parent death signal for them: they do not see their parent.
	Contained bool
	// Dial connects from the client of the test to any host.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Local connects from the host.
	Local func(ctx context.Context, network, address string) (net.Conn, error)
}

func (h *Host) run(start func() error) error {
	if h == nil {
		return start()
	}
	return h.Run(start)
}

func (h *Host) address() string {
	if h == nil {
		return loopback
	}
	return h.Address
}

// reach sets how clients of the test connect to the host.
func (h *Host) reach(config *rest.Config) *rest.Config {
	if h != nil {
		config.Dial = h.Dial
	}
	return config
}
