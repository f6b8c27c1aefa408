// Package postgrestest starts a PostgreSQL server for tests.
package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"k8s.io/apimachinery/pkg/util/wait"

	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/child"
)

const (
	superuser = "hub"
	// ownDatabase is the database of a server of one test.
	ownDatabase = "own"
	// port is the port of a server on a host of its own.
	port = 5432
)

// Host is a machine on which a server runs, such as a node of test/network.
type Host struct {
	// Address is the IP address of the server.
	Address string
	// Run calls a function that starts a process, such that the process runs on the host.
	Run func(start func() error) error
	// Prepare is called with the empty directory of the server, if set, such as to mount a disk there.
	Prepare func(directory string) error
}

// Server is a PostgreSQL server that a test may kill and start again. It listens on a socket in its own directory.
type Server struct {
	// DSN is the connection string of an empty database.
	DSN string

	directory string
	// host is the host on whose address the server also listens, if set.
	host    *Host
	command *exec.Cmd
	// exited is closed when the process has ended.
	exited chan struct{}
}

var (
	mu        sync.Mutex
	shared    *Server
	users     int
	databases atomic.Int64
	// kept is true if Main stops the shared server.
	kept bool
)

// Main runs all tests of a package with one server, and returns the exit code. TestMain calls it.
func Main(m *testing.M) int {
	mu.Lock()
	kept = true
	mu.Unlock()
	code := m.Run()
	mu.Lock()
	defer mu.Unlock()
	if shared != nil {
		shared.stop()
	}
	return code
}

// Start creates an empty database on the server of this process and returns its connection string.
// The first call starts the server. The server ends with Main, or without Main after the last test
// that uses it, and always with this process. Its databases are then removed. If PostgreSQL is not
// installed, the test fails immediately.
func Start(t testing.TB) (dsn string) {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	if shared == nil {
		shared = start(t, nil, (*Server).initialize)
	}
	users++
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		if users--; users == 0 && !kept {
			shared.stop()
			shared = nil
		}
	})
	return shared.create(t, fmt.Sprintf("test%d", databases.Add(1)))
}

// Own starts a server for one test. It ends with the test. With a host, the connection string contains its address.
func Own(t testing.TB, on *Host) *Server {
	t.Helper()
	s := start(t, on, (*Server).initialize)
	t.Cleanup(s.stop)
	s.DSN = s.create(t, ownDatabase)
	if on != nil {
		s.DSN = dsn(fmt.Sprintf("%s port=%d", on.Address, port), ownDatabase)
	}
	return s
}

// Replica starts a streaming replica of the server. It ends with the test.
func (s *Server) Replica(t testing.TB) *Server {
	t.Helper()
	out := start(t, nil, func(out *Server, ctx context.Context) error {
		return out.run(ctx, "pg_basebackup", "--host="+s.directory, "--username="+superuser, "--pgdata="+out.data(), "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
	})
	t.Cleanup(out.stop)
	out.DSN = dsn(out.directory, ownDatabase)
	return out
}

// start starts a server on the data that fill makes.
func start(t testing.TB, on *Host, fill func(s *Server, ctx context.Context) error) *Server {
	t.Helper()
	// The path of a socket has at most 107 bytes, too few for the directory of a test.
	directory, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{directory: directory, host: on}
	ctx := context.WithoutCancel(t.Context())
	if on != nil && on.Prepare != nil {
		err = on.Prepare(directory)
	}
	if err == nil {
		err = s.own()
	}
	if err == nil {
		limited, cancel := context.WithTimeout(ctx, await.Patience)
		defer cancel()
		err = fill(s, limited)
	}
	if err == nil {
		err = s.launch(ctx)
	}
	if err != nil {
		t.Fatalf("PostgreSQL: %v", errors.Join(err, s.remove()))
	}
	return s
}

// own gives the directory to the user as which the server runs.
func (s *Server) own() error {
	as, err := owner()
	if as == nil || err != nil {
		return err
	}
	return os.Chown(s.directory, int(as.Uid), int(as.Gid))
}

// initialize makes the data of a new server.
func (s *Server) initialize(ctx context.Context) error {
	err := s.run(ctx, "initdb", "--pgdata="+s.data(), "--username="+superuser, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
	if err != nil || s.host == nil {
		return err
	}
	// initdb trusts the socket and the loopback addresses only.
	access, err := os.OpenFile(filepath.Join(s.data(), "pg_hba.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = access.WriteString("host all all samenet trust\n")
	return errors.Join(err, access.Close())
}

// Kill sends SIGKILL to the server, and returns when it has ended. Its children end by themselves.
func (s *Server) Kill() error {
	if err := s.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-s.exited
	return nil
}

// Running reports whether the main process of the server runs.
func (s *Server) Running() bool {
	select {
	case <-s.exited:
		return false
	default:
		return true
	}
}

// Directory returns the directory of the server.
func (s *Server) Directory() string { return s.directory }

// Log returns the end of the log of the server.
func (s *Server) Log() string {
	content, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-16<<10):])
}

// Signal sends a signal to all processes of the server. Each of its children is in a process group of its own.
func (s *Server) Signal(signal syscall.Signal) error {
	main := s.command.Process.Pid
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", main, main))
	if err != nil {
		return err
	}
	// The main process comes first, so that it does not replace the others.
	for _, process := range append([]string{strconv.Itoa(main)}, strings.Fields(string(content))...) {
		pid, err := strconv.Atoi(process)
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// Restart waits until the killed server has ended, and starts it again.
func (s *Server) Restart(ctx context.Context) error {
	<-s.exited
	return s.Start(ctx)
}

// Start starts the server again after Kill.
func (s *Server) Start(ctx context.Context) error {
	// The children of the killed server still have the shared memory for a moment.
	return await.Poll(ctx, s.launch)
}

// launch starts the server on its data, and returns when it accepts connections.
func (s *Server) launch(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, await.Patience)
	defer cancel()
	addresses, run := "", (func(start func() error) error)(nil)
	if s.host != nil {
		addresses, run = s.host.Address, s.host.Run
	}
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	command, err := s.program(context.WithoutCancel(ctx), "postgres", "-D", s.data(), "-k", s.directory,
		"-c", "listen_addresses="+addresses, "-c", fmt.Sprintf("port=%d", port), "-c", "unix_socket_permissions=0700", "-c", "max_connections=200",
		// Except for fsync, these are the settings of the operator of the public search service.
		"-c", "fsync=off", "-c", "shared_buffers=128MB",
		"-c", "work_mem=64MB", "-c", "effective_cache_size=2GB", "-c", "max_parallel_workers_per_gather=8",
		"-c", "max_wal_size=4GB", "-c", "autovacuum_naptime=5s")
	if err != nil {
		return err
	}
	command.Stdout, command.Stderr = log, log
	// After SIGQUIT, PostgreSQL and all its children stop immediately.
	ended, err := child.Start(command, syscall.SIGQUIT, run)
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	exited := make(chan struct{})
	go func() {
		// The log contains the reason why the command ended.
		<-ended
		close(exited)
	}()
	s.command, s.exited = command, exited
	err = wait.PollUntilContextCancel(limited, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if !s.Running() {
			return false, errors.New("the server has ended")
		}
		return s.execute(ctx, "SELECT 1") == nil, nil
	})
	if err != nil {
		s.quit()
		return fmt.Errorf("postgres is not ready: %w\n%s", err, s.Log())
	}
	return nil
}

// run runs a program of PostgreSQL.
func (s *Server) run(ctx context.Context, name string, args ...string) error {
	command, err := s.program(ctx, name, args...)
	if err != nil {
		return err
	}
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}

// program returns a command that runs in the server's directory, as its owner and in its own process group.
func (s *Server) program(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	as, err := owner()
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, filepath.Join(bin, name), args...)
	command.Dir = s.directory
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	command.WaitDelay = 5 * time.Second
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: as}
	return command, nil
}

// quit ends the main process, which ends its children.
func (s *Server) quit() {
	_ = s.command.Process.Signal(syscall.SIGQUIT)
	<-s.exited
}

// stop ends the server and removes its data.
func (s *Server) stop() {
	s.quit()
	_ = s.remove()
}

func (s *Server) remove() error {
	return errors.Join(os.RemoveAll(s.directory), os.RemoveAll(s.logFile()))
}

func (s *Server) data() string { return filepath.Join(s.directory, "data") }

// logFile is outside of the directory, which may be a disk that a test fills.
func (s *Server) logFile() string { return s.directory + ".log" }

func dsn(host, database string) string {
	return fmt.Sprintf("host=%s user=%s dbname=%s sslmode=disable", host, superuser, database)
}

// create creates a database and returns its connection string.
func (s *Server) create(t testing.TB, database string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	if err := s.execute(ctx, "CREATE DATABASE "+database); err != nil {
		t.Fatalf("PostgreSQL: creating a database: %v", err)
	}
	return dsn(s.directory, database)
}

func (s *Server) execute(ctx context.Context, statement string) error {
	connection, err := pgx.Connect(ctx, dsn(s.directory, "postgres"))
	if err != nil {
		return err
	}
	defer connection.Close(ctx)
	_, err = connection.Exec(ctx, statement)
	return err
}

// binaries returns the directory of initdb and postgres.
var binaries = sync.OnceValues(func() (string, error) {
	candidates := []string{os.Getenv("HUB_POSTGRES_BIN")}
	ctx, cancel := context.WithTimeout(context.Background(), await.Patience)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		candidates = append(candidates, strings.TrimSpace(string(out)))
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		candidates = append(candidates, filepath.Dir(path))
	}
	_, file, _, _ := runtime.Caller(0)
	for _, root := range []string{"/", filepath.Join(os.Getenv("HUB_BIN"), "postgres"), filepath.Join(filepath.Dir(file), "../../bin/postgres")} {
		found, _ := filepath.Glob(filepath.Join(root, "usr/lib/postgresql/*/bin"))
		slices.Reverse(found) // the newest version is the last
		candidates = append(candidates, found...)
	}
	for _, directory := range candidates {
		_, initdb := exec.LookPath(filepath.Join(directory, "initdb"))
		_, postgres := exec.LookPath(filepath.Join(directory, "postgres"))
		if directory != "" && initdb == nil && postgres == nil {
			return directory, nil
		}
	}
	return "", errors.New("initdb and postgres are not installed; hack/install-postgres.sh installs them")
})

// owner returns an unprivileged user if this process runs as root, because PostgreSQL does not run
// as root. Otherwise it returns nil.
var owner = sync.OnceValues(func() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(found.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(found.Gid, 10, 32)
		if uidErr == nil && gidErr == nil && uid != 0 {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")
})
