package kubelet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// sandboxEnv names the file with the sandbox that this process runs.
const sandboxEnv = "KUBELET_SANDBOX"

// sandbox describes a container and its namespaces.
type sandbox struct {
	Root     string
	ReadOnly bool
	Mounts   []mount
	Command  []string
	Env      []string
	UID, GID uint32
	Groups   []uint32
	// Inside is the socket that forwards connections to ports of the container, and Outside the one
	// that forwards connections of the container to Ports.
	Inside, Outside string
	Ports           []int
}

type mount struct {
	Source, Target string
	ReadOnly       bool
}

// Main runs a sandbox and exits, if this process is one. TestMain of a test that uses this package
// calls it first.
func Main() {
	path := os.Getenv(sandboxEnv)
	if path == "" {
		return
	}
	// The parent death signal of the container depends on this thread.
	runtime.LockOSThread()
	code, err := runSandbox(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, "sandbox:", err)
		code = 1
	}
	os.Exit(code)
}

func runSandbox(path string) (int, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	s := &sandbox{}
	if err := json.Unmarshal(content, s); err != nil {
		return 0, err
	}
	if err := s.mount(); err != nil {
		return 0, err
	}
	if err := s.network(); err != nil {
		return 0, err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	command := &exec.Cmd{
		Path: s.Command[0], Args: s.Command, Env: s.Env, Dir: "/", Stdout: os.Stdout, Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{
			Chroot: s.Root, Pdeathsig: syscall.SIGKILL,
			Credential: &syscall.Credential{Uid: s.UID, Gid: s.GID, Groups: s.Groups},
		},
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	if err := command.Start(); err != nil {
		return 0, err
	}
	go func() {
		for received := range signals {
			_ = command.Process.Signal(received)
		}
	}()
	err = command.Wait()
	var exited *exec.ExitError
	if errors.As(err, &exited) {
		return max(exited.ExitCode(), 1), nil
	}
	return 0, err
}

// mount makes the volumes visible below the root.
func (s *sandbox) mount() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	bind := func(source, target string, readOnly bool) error {
		if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", target, err)
		}
		if !readOnly {
			return nil
		}
		if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("mount %s read-only: %w", target, err)
		}
		return nil
	}
	if err := bind(s.Root, s.Root, s.ReadOnly); err != nil {
		return err
	}
	for _, volume := range s.Mounts {
		if err := bind(volume.Source, filepath.Join(s.Root, volume.Target), volume.ReadOnly); err != nil {
			return err
		}
	}
	return nil
}

// network starts the loopback interface and the forwarders of the sandbox.
func (s *sandbox) network() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(socket) }()
	loopback, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	loopback.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, loopback); err != nil {
		return fmt.Errorf("start the loopback interface: %w", err)
	}
	for _, port := range s.Ports {
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return err
		}
		go accept(listener, func(connection net.Conn) (net.Conn, error) { return dialPort(s.Outside, port) })
	}
	listener, err := net.Listen("unix", s.Inside)
	if err != nil {
		return err
	}
	go accept(listener, func(connection net.Conn) (net.Conn, error) {
		port, err := readPort(connection)
		if err != nil {
			return nil, err
		}
		return net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	})
	return nil
}

// accept connects each connection of a listener to another one, until the listener is closed.
func accept(listener net.Listener, dial func(net.Conn) (net.Conn, error)) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			other, err := dial(connection)
			if err != nil {
				_ = connection.Close()
				return
			}
			join(connection, other)
		}()
	}
}

// join copies between two connections until one of them is closed.
func join(a, b net.Conn) {
	done := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			done <- struct{}{}
		}()
	}
	<-done
	_ = a.Close()
	_ = b.Close()
	<-done
}

// dialPort connects to a port behind a socket: the first line names the port.
func dialPort(socket string, port int) (net.Conn, error) {
	connection, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(connection, "%d\n", port); err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	return connection, nil
}

func readPort(connection net.Conn) (int, error) {
	// Byte by byte: what follows belongs to the connection.
	var line strings.Builder
	for buffer := make([]byte, 1); ; {
		if _, err := io.ReadFull(connection, buffer); err != nil {
			return 0, err
		}
		if buffer[0] == '\n' {
			return strconv.Atoi(line.String())
		}
		line.WriteByte(buffer[0])
	}
}
