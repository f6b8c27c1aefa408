// Package network connects processes of a test over a network that the test can break: every node has a network
// namespace and a host name of its own, with one interface and one address. The interface is a TUN device, whose packets the test
// forwards. A link between two nodes can be cut in one or both directions, and can lose or delay packets, without
// netem or a packet filter in the kernel. No packet leaves the network, and nothing outside of the namespaces
// changes. It requires root.
package network

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// mtu is larger than that of Ethernet, because each packet costs two system calls.
	mtu = 9000
	// queued is the maximum number of packets that a slow link delays at the same time. It drops others, as the
	// queue of a router does.
	queued = 4096
)

// Link is the condition of the packets from one node to another. The zero value forwards them at once.
type Link struct {
	// Cut drops all packets.
	Cut bool
	// Loss is the probability with which a packet is dropped.
	Loss float64
	// Delay is added to the time of each packet.
	Delay time.Duration
}

// Network is a set of nodes.
type Network struct {
	mu    sync.RWMutex
	nodes map[[4]byte]*Node
	links map[[2]*Node]*link
	done  chan struct{}
	// forwarding counts the goroutines that forward packets.
	forwarding sync.WaitGroup
}

type link struct {
	Link
	queue chan delayed
}

type delayed struct {
	packet []byte
	due    time.Time
}

// Node is one address of a network.
type Node struct {
	// Name is the host name of the node.
	Name string
	// Address is the IPv4 address of the node.
	Address string

	// namespaces are those of the network and of the host name.
	namespaces []*os.File
	device     *os.File
}

// kinds are the namespaces of a node, and their names in /proc.
var kinds = []struct {
	flag int
	name string
}{{unix.CLONE_NEWNET, "net"}, {unix.CLONE_NEWUTS, "uts"}}

// namespacesOf returns the namespaces of a thread.
func namespacesOf(tid int) (out []*os.File, err error) {
	for _, kind := range kinds {
		file, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", tid, kind.name))
		if err != nil {
			return nil, errors.Join(err, closeAll(out))
		}
		out = append(out, file)
	}
	return out, nil
}

func closeAll(files []*os.File) error {
	var errs []error
	for _, file := range files {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}

// enter makes namespaces those of this thread.
func enter(namespaces []*os.File) error {
	for i, kind := range kinds {
		if err := unix.Setns(int(namespaces[i].Fd()), kind.flag); err != nil {
			return err
		}
	}
	return nil
}

// Of returns a node of the namespaces of a process, which is in no network, and starts its loopback interface.
func Of(pid int) (*Node, error) {
	namespaces, err := namespacesOf(pid)
	if err != nil {
		return nil, err
	}
	node := &Node{Name: fmt.Sprintf("process %d", pid), Address: "127.0.0.1", namespaces: namespaces}
	if err := node.Do(func() error { return configure("", nil) }); err != nil {
		return nil, errors.Join(err, node.Close())
	}
	return node, nil
}

// Close ends the use of a node of a process.
func (node *Node) Close() error { return closeAll(node.namespaces) }

// New returns a network without nodes.
func New() *Network {
	return &Network{nodes: map[[4]byte]*Node{}, links: map[[2]*Node]*link{}, done: make(chan struct{})}
}

// Add adds a node. A network has at most 250 nodes.
func (n *Network) Add(name string) (*Node, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	address := [4]byte{10, 77, 0, byte(len(n.nodes) + 1)}
	node := &Node{Name: name, Address: net.IP(address[:]).String()}
	errs := make(chan error)
	go func() {
		// The thread stays in the new namespace and ends with this goroutine, because it is not unlocked.
		runtime.LockOSThread()
		errs <- node.create(address[:])
	}()
	if err := <-errs; err != nil {
		return nil, fmt.Errorf("network of %s: %w", name, err)
	}
	n.nodes[address] = node
	n.forwarding.Go(func() { n.forward(node) })
	return node, nil
}

// Close ends the connections of all nodes. Their namespaces end with their last process.
func (n *Network) Close() error {
	close(n.done)
	n.mu.Lock()
	var errs []error
	for _, node := range n.nodes {
		errs = append(errs, node.device.Close(), closeAll(node.namespaces))
	}
	n.mu.Unlock()
	n.forwarding.Wait()
	return errors.Join(errs...)
}

// Set changes the link from one node to another. The opposite direction does not change.
func (n *Network) Set(from, to *Node, condition Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := [2]*Node{from, to}
	if n.links[key] == nil {
		n.links[key] = &link{queue: make(chan delayed, queued)}
		queue := n.links[key].queue
		n.forwarding.Go(func() { n.deliver(queue, to) })
	}
	n.links[key].Link = condition
}

// SetBoth changes the links between two nodes in both directions.
func (n *Network) SetBoth(a, b *Node, condition Link) {
	n.Set(a, b, condition)
	n.Set(b, a, condition)
}

// Heal restores all links.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, link := range n.links {
		link.Link = Link{}
	}
}

// create makes the namespace of this thread that of the node, and creates its interface.
func (node *Node) create(address []byte) error {
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("create namespaces, which requires root: %w", err)
	}
	if err := unix.Sethostname([]byte(node.Name)); err != nil {
		return err
	}
	var err error
	if node.namespaces, err = namespacesOf(unix.Gettid()); err != nil {
		return err
	}
	tun, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open /dev/net/tun: %w", err)
	}
	const device = "eth0"
	request, err := unix.NewIfreq(device)
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(tun, unix.TUNSETIFF, request); err != nil {
		return fmt.Errorf("create a TUN device: %w", err)
	}
	node.device = os.NewFile(uintptr(tun), device)
	return configure(device, address)
}

// configure starts the interfaces of this thread's namespace: the loopback interface, and a device with an address if
// it is given.
func configure(device string, address []byte) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(socket) }()
	set := func(name string, request uint, change func(*unix.Ifreq) error) error {
		content, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		if err := change(content); err != nil {
			return err
		}
		return unix.IoctlIfreq(socket, request, content)
	}
	up := func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING); return nil }
	if err := set("lo", unix.SIOCSIFFLAGS, up); err != nil || device == "" {
		return err
	}
	return errors.Join(
		set(device, unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(address) }),
		set(device, unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr([]byte{255, 255, 255, 0}) }),
		set(device, unix.SIOCSIFMTU, func(r *unix.Ifreq) error { r.SetUint32(mtu); return nil }),
		set(device, unix.SIOCSIFFLAGS, up),
	)
}

// forward forwards the packets of a node until its device is closed.
func (n *Network) forward(from *Node) {
	buffer := make([]byte, mtu+64)
	for {
		size, err := from.device.Read(buffer)
		if err != nil {
			return
		}
		const header, destination = 20, 16
		if size < header || buffer[0]>>4 != 4 {
			continue
		}
		n.mu.RLock()
		to := n.nodes[[4]byte(buffer[destination:destination+4])]
		var condition Link
		var queue chan delayed
		if link := n.links[[2]*Node{from, to}]; link != nil {
			condition, queue = link.Link, link.queue
		}
		n.mu.RUnlock()
		switch {
		case to == nil || condition.Cut || condition.Loss > 0 && rand.Float64() < condition.Loss:
		case condition.Delay > 0:
			select {
			case queue <- delayed{append([]byte(nil), buffer[:size]...), time.Now().Add(condition.Delay)}:
			default:
			}
		default:
			_, _ = to.device.Write(buffer[:size])
		}
	}
}

// deliver writes delayed packets in their order.
func (n *Network) deliver(queue chan delayed, to *Node) {
	for {
		select {
		case <-n.done:
			return
		case next := <-queue:
			select {
			case <-n.done:
				return
			case <-time.After(time.Until(next.due)):
				_, _ = to.device.Write(next.packet)
			}
		}
	}
}

// Do calls run in the namespace of the node. Processes that run starts, and sockets that it creates, stay there.
// run must not start goroutines that create sockets.
func (node *Node) Do(run func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := namespacesOf(unix.Gettid())
	if err != nil {
		return err
	}
	defer func() { _ = closeAll(own) }()
	if err = enter(node.namespaces); err != nil {
		err = fmt.Errorf("enter the network of %s: %w", node.Name, err)
	} else {
		err = run()
	}
	if back := enter(own); back != nil {
		// The thread must not be used by others, and ends with this goroutine.
		runtime.LockOSThread()
		return errors.Join(err, back)
	}
	return err
}

// DialContext connects from the node. The address must be an IP address with a port.
func (node *Node) DialContext(ctx context.Context, network, address string) (connection net.Conn, err error) {
	err = node.Do(func() error {
		connection, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return connection, err
}
