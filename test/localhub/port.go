package localhub

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Ports are chosen below the range that Linux uses for outgoing connections (32768
// and up by default). Otherwise, a client's connection could use the port of a killed
// server while the server is down.
const (
	firstPort = 12000
	lastPort  = 32700
)

var (
	portsMu sync.Mutex
	handed  = map[int]bool{} // ports that this program uses
	locks   []*os.File       // files whose locks this program holds, open until it exits
)

// rememberedPort returns the port in file if nothing listens on it. Otherwise it returns
// a free port and writes it to file. A hub thus keeps its address: kubeconfigs stay
// valid, and agents distinguish hubs by their addresses.
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
	port, err := freePort(firstPort, lastPort)
	if err != nil {
		return 0, err
	}
	return port, os.WriteFile(file, []byte(strconv.Itoa(port)+"\n"), 0o600)
}

// claim records that this program uses a port, or returns an error if a process listens
// on it, or another program has claimed it. The caller holds portsMu.
func claim(port int) error {
	if !handed[port] {
		// Packages are tested by several programs at once. The kernel releases the lock when this one exits.
		lock, err := os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf("localhub-port-%d.lock", port)), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			return errors.Join(err, lock.Close())
		}
		locks = append(locks, lock)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return err
	}
	handed[port] = true
	return listener.Close()
}

// FreePort returns a TCP port of 127.0.0.1 on which no process listens and that this
// program does not use.
func FreePort() (int, error) {
	portsMu.Lock()
	defer portsMu.Unlock()
	return freePort(firstPort, lastPort)
}

// freePort does the same as FreePort for the ports from first to before last. The caller holds portsMu.
func freePort(first, last int) (int, error) {
	failed := errors.New("none tried")
	for range 200 {
		port := first + rand.IntN(last-first)
		if handed[port] {
			continue
		}
		if failed = claim(port); failed == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port on 127.0.0.1: %w", failed)
}
