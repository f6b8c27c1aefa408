// Package postgrestest starts a PostgreSQL server for tests.
package postgrestest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
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
)

const (
	superuser = "hub"
	// ownDatabase is the database of a Server.
	ownDatabase = "own"
)

// port is the port of a server on a host of its own.
const port = 5432

// Host is a machine on which a server runs, such as a node of test/network.
type Host struct {
	// Address is the IP address of the server.
	Address string
	// Run calls a function that starts a process, such that the process runs on the host.
	Run func(start func() error) error
	// Prepare is called with the empty directory of the server, if set, such as to mount a disk there.
	Prepare func(directory string) error
}

// server is a PostgreSQL server that listens on a socket in its own directory.
type server struct {
	directory string
	// host is the host on whose address the server also listens, if set.
	host      *Host
	command   *exec.Cmd
	databases atomic.Int64
	users     int
	// exited is closed when the process has ended.
	exited chan struct{}
	log    tail
}

var (
	mu     sync.Mutex
	shared *server
	// kept is true if Main stops the server.
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
		shared = nil
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
		started, err := start(context.WithoutCancel(t.Context()), nil)
		if err != nil {
			t.Fatalf("PostgreSQL: %v", err)
		}
		shared = started
	}
	s := shared
	s.users++
	t.Cleanup(s.release)
	name := fmt.Sprintf("test%d", s.databases.Add(1))
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	if err := s.execute(ctx, "CREATE DATABASE "+name); err != nil {
		t.Fatalf("PostgreSQL: creating a database: %v", err)
	}
	return s.dsn(name)
}

// Server is a PostgreSQL server that a test may kill and start again.
type Server struct {
	// DSN is the connection string of an empty database.
	DSN string

	server *server
	bin    string
	owner  *identity
}

// Own starts a server for one test. It ends with the test. With a host, the connection string contains its address.
func Own(t testing.TB, on *Host) *Server {
	t.Helper()
	out := &Server{}
	var err error
	if out.bin, err = binaries(t.Context()); err == nil {
		out.owner, err = owner()
	}
	if err == nil {
		out.server, err = start(context.WithoutCancel(t.Context()), on)
	}
	if err != nil {
		t.Fatalf("PostgreSQL: %v", err)
	}
	t.Cleanup(out.server.stop)
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	if err := out.server.execute(ctx, "CREATE DATABASE "+ownDatabase); err != nil {
		t.Fatalf("PostgreSQL: creating a database: %v", err)
	}
	out.DSN = out.server.dsn(ownDatabase)
	if on != nil {
		out.DSN = dsn(fmt.Sprintf("%s port=%d", on.Address, port), ownDatabase)
	}
	return out
}

// Replica starts a streaming replica of the server. It ends with the test.
func (s *Server) Replica(t testing.TB) *Server {
	t.Helper()
	directory, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	out := &Server{bin: s.bin, owner: s.owner, server: &server{directory: directory, exited: make(chan struct{})}}
	if err := out.server.copyOf(context.WithoutCancel(t.Context()), s); err != nil {
		t.Fatalf("PostgreSQL: replica: %v", errors.Join(err, os.RemoveAll(directory)))
	}
	t.Cleanup(out.server.stop)
	out.DSN = out.server.dsn(ownDatabase)
	return out
}

// copyOf copies the data of another server, and launches the server as its replica.
func (s *server) copyOf(ctx context.Context, other *Server) error {
	if owner := other.owner; owner != nil {
		if err := os.Chown(s.directory, owner.uid, owner.gid); err != nil {
			return err
		}
	}
	limited, cancel := context.WithTimeout(ctx, await.Patience)
	defer cancel()
	backup := exec.CommandContext(limited, filepath.Join(other.bin, "pg_basebackup"), "--host="+other.server.directory, "--username="+superuser,
		"--pgdata="+filepath.Join(s.directory, "data"), "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
	s.prepare(backup, other.owner)
	if out, err := backup.CombinedOutput(); err != nil {
		return fmt.Errorf("pg_basebackup: %w\n%s", err, out)
	}
	return s.launch(ctx, other.bin, other.owner)
}

// Kill sends SIGKILL to the server, and returns when it has ended. Its children end by themselves.
func (s *Server) Kill() error {
	if err := s.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-s.server.exited
	return nil
}

// Running reports whether the main process of the server runs.
func (s *Server) Running() bool {
	select {
	case <-s.server.exited:
		return false
	default:
		return true
	}
}

// Directory returns the directory of the server.
func (s *Server) Directory() string { return s.server.directory }

// Log returns the end of the log of the server.
func (s *Server) Log() string { return s.server.log.String() }

// Signal sends a signal to all processes of the server. Each of its children is in a process group of its own.
func (s *Server) Signal(signal syscall.Signal) error {
	main := s.server.command.Process.Pid
	// The main process comes first, so that it does not replace the others.
	processes := []int{main}
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", main, main))
	if err != nil {
		return err
	}
	for child := range strings.FieldsSeq(string(content)) {
		pid, err := strconv.Atoi(child)
		if err != nil {
			return err
		}
		processes = append(processes, pid)
	}
	for _, pid := range processes {
		if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// Restart waits until the killed server has ended, and starts it again.
func (s *Server) Restart(ctx context.Context) error {
	<-s.server.exited
	return s.Start(ctx)
}

// Start starts the server again after Kill.
func (s *Server) Start(ctx context.Context) error {
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, await.Patience, true, func(ctx context.Context) (bool, error) {
		// The children of the killed server still have the shared memory for a moment.
		return s.server.launch(ctx, s.bin, s.owner) == nil, nil
	})
}

// release stops the server after the last test that uses it.
func (s *server) release() {
	mu.Lock()
	defer mu.Unlock()
	if s.users--; s.users > 0 || kept {
		return
	}
	s.stop()
	if shared == s {
		shared = nil
	}
}

func start(ctx context.Context, on *Host) (*server, error) {
	bin, err := binaries(ctx)
	if err != nil {
		return nil, err
	}
	owner, err := owner()
	if err != nil {
		return nil, err
	}
	// The path of a socket has at most 107 bytes, too few for the directory of a test.
	directory, err := os.MkdirTemp("", "pg")
	if err != nil {
		return nil, err
	}
	s := &server{directory: directory, host: on, exited: make(chan struct{})}
	if err := s.run(ctx, bin, owner); err != nil {
		return nil, errors.Join(err, os.RemoveAll(directory))
	}
	return s, nil
}

func (s *server) run(ctx context.Context, bin string, owner *identity) error {
	if s.host != nil && s.host.Prepare != nil {
		if err := s.host.Prepare(s.directory); err != nil {
			return err
		}
	}
	if owner != nil {
		if err := os.Chown(s.directory, owner.uid, owner.gid); err != nil {
			return err
		}
	}
	data := filepath.Join(s.directory, "data")
	limited, cancel := context.WithTimeout(ctx, await.Patience)
	defer cancel()
	initdb := exec.CommandContext(limited, filepath.Join(bin, "initdb"), "--pgdata="+data, "--username="+superuser,
		"--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
	s.prepare(initdb, owner)
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	if s.host != nil {
		// initdb trusts the socket and the loopback addresses only.
		access, err := os.OpenFile(filepath.Join(data, "pg_hba.conf"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = access.WriteString("host all all samenet trust\n")
		if err := errors.Join(err, access.Close()); err != nil {
			return err
		}
	}
	return s.launch(ctx, bin, owner)
}

// launch starts the server on its data, and returns when it accepts connections.
func (s *server) launch(ctx context.Context, bin string, owner *identity) error {
	limited, cancel := context.WithTimeout(ctx, await.Patience)
	defer cancel()
	data := filepath.Join(s.directory, "data")
	s.exited = make(chan struct{})
	addresses, run := "", func(start func() error) error { return start() }
	if s.host != nil {
		addresses, run = s.host.Address, s.host.Run
	}
	s.command = exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", s.directory,
		"-c", "listen_addresses="+addresses, "-c", fmt.Sprintf("port=%d", port), "-c", "unix_socket_permissions=0700", "-c", "max_connections=200",
		// Except for fsync, these are the settings of the operator of the public search service.
		"-c", "fsync=off", "-c", "shared_buffers="+setting("HUB_POSTGRES_SHARED_BUFFERS", "128MB"),
		"-c", "work_mem=64MB", "-c", "effective_cache_size=2GB", "-c", "max_parallel_workers_per_gather=8",
		"-c", "max_wal_size=4GB", "-c", "autovacuum_naptime=5s")
	s.prepare(s.command, owner)
	s.command.Stdout, s.command.Stderr = &s.log, &s.log
	if err := startBound(s.command, run, s.exited); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	err := wait.PollUntilContextCancel(limited, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		select {
		case <-s.exited:
			return false, errors.New("the server has ended")
		default:
			return s.execute(ctx, "SELECT 1") == nil, nil
		}
	})
	if err != nil {
		s.kill()
		<-s.exited
		return fmt.Errorf("postgres is not ready: %w\n%s", err, &s.log)
	}
	return nil
}

func setting(name, fallback string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return fallback
}

// prepare makes a command run in the server's directory as its owner.
func (s *server) prepare(command *exec.Cmd, owner *identity) {
	command.Dir = s.directory
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	command.WaitDelay = 5 * time.Second
	restrict(command, owner)
}

// kill ends the postmaster, which ends its children.
func (s *server) kill() {
	if s.command != nil && s.command.Process != nil {
		_ = s.command.Process.Signal(syscall.SIGQUIT)
	}
}

// stop ends the server and removes its data.
func (s *server) stop() {
	s.kill()
	<-s.exited
	_ = os.RemoveAll(s.directory)
}

func (s *server) dsn(database string) string { return dsn(s.directory, database) }

func dsn(host, database string) string {
	return fmt.Sprintf("host=%s user=%s dbname=%s sslmode=disable", host, superuser, database)
}

func (s *server) execute(ctx context.Context, statement string) error {
	connection, err := pgx.Connect(ctx, s.dsn("postgres"))
	if err != nil {
		return err
	}
	defer connection.Close(ctx)
	_, err = connection.Exec(ctx, statement)
	return err
}

// binaries returns the directory of initdb and postgres.
func binaries(ctx context.Context) (string, error) {
	var candidates []string
	if directory := os.Getenv("HUB_POSTGRES_BIN"); directory != "" {
		candidates = append(candidates, directory)
	}
	limited, cancel := context.WithTimeout(ctx, await.Patience)
	defer cancel()
	if out, err := exec.CommandContext(limited, "pg_config", "--bindir").Output(); err == nil {
		candidates = append(candidates, strings.TrimSpace(string(out)))
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		candidates = append(candidates, filepath.Dir(path))
	}
	candidates = append(candidates, newestFirst("/usr/lib/postgresql/*/bin")...)
	if built := os.Getenv("HUB_BIN"); built != "" {
		candidates = append(candidates, newestFirst(filepath.Join(built, "postgres/usr/lib/postgresql/*/bin"))...)
	}
	if root, err := moduleRoot(); err == nil {
		candidates = append(candidates, newestFirst(filepath.Join(root, "bin/postgres/usr/lib/postgresql/*/bin"))...)
	}
	for _, directory := range candidates {
		if executable(filepath.Join(directory, "initdb")) && executable(filepath.Join(directory, "postgres")) {
			return directory, nil
		}
	}
	return "", errors.New("initdb and postgres are not installed; hack/install-postgres.sh installs them")
}

// moduleRoot returns the directory of go.mod at or above the working directory.
func moduleRoot() (string, error) {
	directory, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(directory, "go.mod")); err == nil {
			return directory, nil
		}
		parent := filepath.Dir(directory)
		if parent == directory {
			return "", errors.New("no go.mod above the working directory")
		}
		directory = parent
	}
}

// newestFirst returns the directories that match a pattern, highest version first.
func newestFirst(pattern string) []string {
	found, err := filepath.Glob(pattern)
	if err != nil {
		return nil
	}
	version := func(path string) int {
		number, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return 0
		}
		return number
	}
	slices.SortStableFunc(found, func(a, b string) int { return cmp.Compare(version(b), version(a)) })
	return found
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// identity is the user as which the server runs.
type identity struct{ uid, gid int }

// owner returns an unprivileged user if this process runs as root, because PostgreSQL does not run
// as root. Otherwise it returns nil.
func owner() (*identity, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.Atoi(found.Uid)
		gid, gidErr := strconv.Atoi(found.Gid)
		if uidErr == nil && gidErr == nil && uid != 0 {
			return &identity{uid: uid, gid: gid}, nil
		}
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")
}

// tail keeps the end of the output of a process.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	const most = 16 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if len(t.text) > most {
		t.text = bytes.Clone(t.text[len(t.text)-most:])
	}
	return len(p), nil
}

// String returns the kept output.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
