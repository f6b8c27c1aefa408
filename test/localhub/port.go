package localhub

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
)

// Ports are taken from below the range that Linux gives to outgoing
// connections (32768 and up by default): otherwise, while a killed server is
// down, some client's connection could be given its port.
const (
	firstPort = 12000
	lastPort  = 32700
)

var (
	portsMu sync.Mutex
	handed  = map[int]bool{} // ports given out by this program, whether or not they are listened on yet
)

// rememberedPort returns the port that file records, if nothing listens on it
// now, or else a free one, which it records there. A hub keeps its address this
// way: kubeconfigs stay valid, and agents tell hubs apart by their addresses.
func rememberedPort(file string) (int, error) {
	content, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	portsMu.Lock()
	defer portsMu.Unlock()
	if port, err := strconv.Atoi(strings.TrimSpace(string(content))); err == nil && claim(port) == nil {
		return port, nil
	}
	port, err := freePort()
	if err != nil {
		return 0, err
	}
	return port, os.WriteFile(file, []byte(strconv.Itoa(port)+"\n"), 0o600)
}

// claim notes that a port has been given out, unless something listens on it.
// The caller holds portsMu.
func claim(port int) error {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return err
	}
	handed[port] = true
	return listener.Close()
}

// FreePort returns a TCP port of 127.0.0.1 on which nothing listens, and which
// this program has not been given before.
func FreePort() (int, error) {
	portsMu.Lock()
	defer portsMu.Unlock()
	return freePort()
}

// freePort is FreePort for a caller that holds portsMu.
func freePort() (int, error) {
	last := errors.New("none tried")
	for range 200 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if handed[port] {
			continue
		}
		if last = claim(port); last == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port on 127.0.0.1: %w", last)
}
