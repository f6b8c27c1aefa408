package kubelet

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// sandboxEnv is set for a process that runs the sandbox in its standard input.
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
}

type mount struct {
	Source, Target string
	ReadOnly       bool
}

// Main runs a sandbox and exits, if this process is one. TestMain of a test that uses this package
// calls it first.
func Main() {
	if os.Getenv(sandboxEnv) == "" {
		return
	}
	// The parent death signal of the container depends on this thread.
	runtime.LockOSThread()
	code, err := runSandbox()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sandbox:", err)
		code = 1
	}
	os.Exit(code)
}

func runSandbox() (int, error) {
	s := &sandbox{}
	// It arrives when the network is ready.
	if err := json.NewDecoder(os.Stdin).Decode(s); err != nil {
		return 0, err
	}
	if err := s.mount(); err != nil {
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
	err := command.Wait()
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
	for _, volume := range append([]mount{{Source: s.Root, ReadOnly: s.ReadOnly}}, s.Mounts...) {
		target := filepath.Join(s.Root, volume.Target)
		err := unix.Mount(volume.Source, target, "", unix.MS_BIND, "")
		if err == nil && volume.ReadOnly {
			err = unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
		}
		if err != nil {
			return fmt.Errorf("mount %s: %w", target, err)
		}
	}
	return nil
}
