package node

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// firstNumber is the second byte of the addresses of the first Network.
const firstNumber = 200

// Network connects nodes of several clusters, their Pods and this machine: a bridge in a network namespace of its own.
type Network struct {
	number int
	// lock is that of the number, and the kernel releases it when the program ends.
	lock   *os.File
	bridge []namespace

	mu    sync.Mutex
	nodes []*Node
}

// NewNetwork returns a network without nodes. This machine reaches the nodes, and they reach this machine.
func NewNetwork() (*Network, error) {
	n := &Network{}
	if err := n.claim(); err != nil {
		return nil, err
	}
	var err error
	if n.bridge, err = newNamespaces("bridge"); err != nil {
		return nil, errors.Join(err, n.lock.Close())
	}
	machine := fmt.Sprintf("hub-nodes-%d", n.number)
	err = within(n.bridge, commands("ip link add br0 type bridge", "ip link set br0 up"))
	if err == nil {
		err = commands("ip link add "+machine+" type veth peer name machine netns "+n.path(), "ip addr add "+n.address(1)+"/24 dev "+machine, "ip link set "+machine+" up")()
	}
	if err == nil {
		err = within(n.bridge, commands("ip link set machine master br0 up"))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("network of the nodes: %w", err), n.Close())
	}
	return n, nil
}

// claim reserves addresses that neither this machine nor another program uses.
func (n *Network) claim() error {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
numbers:
	for n.number = firstNumber; n.number < 256; n.number++ {
		for _, address := range own {
			if strings.HasPrefix(address.String(), fmt.Sprintf("10.%d.", n.number)) {
				continue numbers
			}
		}
		lock, err := os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf("hub-nodes-%d.lock", n.number)), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			n.lock = lock
			return nil
		}
		_ = lock.Close()
	}
	return errors.New("all networks of nodes are in use")
}

// path returns a name of the bridge's network namespace for other programs.
func (n *Network) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.bridge[0].Fd()) }

func (n *Network) address(host int) string { return fmt.Sprintf("10.%d.0.%d", n.number, host) }

// Add adds a node, which does not run yet. The name is its host name, and the existing directory contains its data.
func (n *Network) Add(name, dir string) (*Node, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	number := len(n.nodes) + 1
	node := &Node{
		Name: name, Address: n.address(number + 1), dir: dir,
		pods: fmt.Sprintf("10.%d.%d.0/24", n.number, number), group: fmt.Sprintf("hub-node-%d-%d", n.number, number),
	}
	if node.spaces, err = newNamespaces(name); err != nil {
		return nil, err
	}
	port := fmt.Sprintf("node%d", number)
	err = within(node.spaces, commands("ip link set lo up",
		"ip link add eth0 type veth peer name "+port+" netns "+n.path(),
		"ip addr add "+node.Address+"/24 dev eth0", "ip link set eth0 up",
		// Addresses of Services need a route, although nft replaces them.
		"ip route add default via "+n.address(1)))
	if err == nil {
		err = within(n.bridge, commands("ip link set "+port+" master br0 up"))
	}
	for _, other := range n.nodes {
		if err == nil {
			err = within(node.spaces, commands("ip route add "+other.pods+" via "+other.Address))
		}
		if err == nil {
			err = within(other.spaces, commands("ip route add "+node.pods+" via "+node.Address))
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("network of the node %s: %w", name, err), closeAll(node.spaces))
	}
	n.nodes = append(n.nodes, node)
	return node, nil
}

// Close stops all nodes, and removes the network.
func (n *Network) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var errs []error
	for _, node := range n.nodes {
		errs = append(errs, node.Crash(), removeGroups(node.group), closeAll(node.spaces))
	}
	n.nodes = nil
	return errors.Join(append(errs, closeAll(n.bridge), n.lock.Close())...)
}

// Host returns the host of the control plane of the node's cluster.
func (node *Node) Host() *localhub.Host {
	dialer := &net.Dialer{}
	return &localhub.Host{Address: node.Address, Dial: dialer.DialContext, Run: func(start func() error) error { return within(node.spaces, start) }}
}

// commands returns a function that runs commands without quoted arguments.
func commands(lines ...string) func() error {
	return func() error {
		for _, line := range lines {
			words := strings.Fields(line)
			command := exec.Command(find(words[0]), words[1:]...)
			if out, err := command.CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w: %s", line, err, out)
			}
		}
		return nil
	}
}
