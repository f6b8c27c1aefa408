package localhub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/child"
)

// logTail is the number of log lines in the error of a failed process.
const logTail = 12

// Process is one program that can be started, stopped, killed and started
// again with the same arguments. Set its exported fields before the first
// Start, and do not change them while it runs. It is safe for concurrent use.
type Process struct {
	// Name identifies the process in errors and progress: "hub kube-apiserver".
	Name string
	// Path is the file to execute.
	Path string
	// Args are the arguments, without the program's name.
	Args []string
	// Env is added to the environment of this program, as KEY=value.
	Env []string
	// LogFile receives standard output and standard error. The first Start
	// truncates it, and later ones append to it. Start creates its directory.
	LogFile string
	// Ready returns nil when the process is ready. It is called repeatedly until
	// then. Without it, the process is ready when it runs.
	Ready func(context.Context) error
	// Prepare runs before each start, if set.
	Prepare func() error
	// Host is the host on which the process runs. Nil means this machine.
	Host *Host

	mu       sync.Mutex
	cmd      *exec.Cmd     // nil before the first Start
	exited   chan struct{} // closed when cmd has exited; nil before the first Start
	waitErr  error         // valid when exited is closed
	started  bool          // the log has been truncated once
	logStart int64         // offset in the log at which the current run begins
}

// Start starts the process and returns when it is ready. It fails if the
// process is already running, cannot be executed, exits, or is not ready by the
// deadline of ctx, [await.Patience] at most. The error names the process, the reason,
// its log and the log's last lines. After an error, the process does not run.
//
// The context bounds only the start. The process continues after the context ends.
func (p *Process) Start(ctx context.Context) error {
	if err := p.Launch(); err != nil {
		return err
	}
	err := p.WaitReady(ctx)
	if err != nil {
		_ = p.Kill()
	}
	return err
}

// Launch starts the process and does not wait until it is ready. Use it for a process
// that waits for an event itself, such as an agent whose cluster is not accepted yet.
func (p *Process) Launch() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.execute(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	return nil
}

// WaitReady returns when a launched process is ready. It fails as Start does,
// but leaves the process running.
func (p *Process) WaitReady(ctx context.Context) error {
	if p.Ready == nil {
		return nil
	}
	exited := p.Exited()
	var final error
	err := await.Poll(ctx, func(ctx context.Context) error {
		select {
		case <-exited:
			final = fmt.Errorf("the process exited (%s)", p.exitReason())
			return nil
		default:
		}
		// An attempt may block in a server that accepts connections but does not respond.
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return p.Ready(ctx)
	})
	if err := errors.Join(err, final); err != nil {
		return fmt.Errorf("start %s: %w%s", p.Name, err, p.LogTail())
	}
	return nil
}

// execute executes the program. The caller holds mu.
func (p *Process) execute() error {
	if p.running() {
		return fmt.Errorf("already running as process %d", p.cmd.Process.Pid)
	}
	if p.Prepare != nil {
		if err := p.Prepare(); err != nil {
			return err
		}
	}
	log, err := p.openLog()
	if err != nil {
		return err
	}

	cmd := exec.Command(p.Path, p.Args...)
	// A program without AWS credentials must not request those of the machine that runs it.
	cmd.Env = slices.Concat(os.Environ(), []string{"AWS_EC2_METADATA_DISABLED=true"}, p.Env)
	cmd.Stdout, cmd.Stderr = log, log
	signal := syscall.SIGKILL
	if p.Host != nil && p.Host.Contained {
		signal = 0
	}
	ended, err := child.Start(cmd, signal, p.Host.run)
	if err != nil {
		return errors.Join(err, log.Close())
	}
	exited := make(chan struct{})
	go func() {
		err := <-ended
		_ = log.Close()
		p.mu.Lock()
		p.waitErr = err
		p.mu.Unlock()
		close(exited)
	}()
	p.cmd, p.exited, p.waitErr, p.started = cmd, exited, nil, true
	return nil
}

func (p *Process) openLog() (*os.File, error) {
	if p.LogFile == "" {
		return os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	}
	if err := os.MkdirAll(filepath.Dir(p.LogFile), 0o700); err != nil {
		return nil, err
	}
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if !p.started {
		flags |= os.O_TRUNC
	}
	log, err := os.OpenFile(p.LogFile, flags, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := log.Stat()
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	p.logStart = info.Size()
	return log, nil
}

// running reports whether the process runs. The caller holds mu.
func (p *Process) running() bool {
	if p.exited == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Running reports whether the process runs.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running()
}

// PID returns the process id of the current or last run, or 0 before the first Start.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Exited returns a channel that is closed when the current run ends, for any reason.
// Before the first Start, the channel is closed.
func (p *Process) Exited() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exited == nil {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	return p.exited
}

// Stop sends SIGTERM to the process and waits until it exits. If the process does not
// exit within await.Patience or by the deadline of ctx, Stop kills it and returns an error.
// Stop returns nil if the process does not run.
func (p *Process) Stop(ctx context.Context) error {
	if !p.Running() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, await.Patience)
	defer cancel()
	exited := p.Exited()
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-exited:
		return nil
	case <-ctx.Done():
		err := fmt.Errorf("stop %s: killed, because it did not stop in time (log: %s)", p.Name, p.LogFile)
		return errors.Join(err, p.Kill())
	}
}

// Kill sends SIGKILL to the process and waits until it exits. It returns nil if the
// process does not run.
func (p *Process) Kill() error {
	exited := p.Exited()
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-exited
	return nil
}

// Pause sends SIGSTOP to the process, which then does nothing until Continue.
func (p *Process) Pause() error { return p.signal(syscall.SIGSTOP) }

// Continue sends SIGCONT to the process.
func (p *Process) Continue() error { return p.signal(syscall.SIGCONT) }

func (p *Process) signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return nil
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	return nil
}

// Restart kills the process if it runs, and starts it again, as after a crash.
func (p *Process) Restart(ctx context.Context) error {
	if err := p.Kill(); err != nil {
		return err
	}
	return p.Start(ctx)
}

// exitReason returns the exit status of the last run.
func (p *Process) exitReason() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waitErr != nil {
		return p.waitErr.Error()
	}
	return "exit status 0"
}

// Failure returns an error with the exit status of the last run, the log and its last lines.
func (p *Process) Failure() error {
	return fmt.Errorf("%s exited (%s)%s", p.Name, p.exitReason(), p.LogTail())
}

// LogTail returns the path of the log and the last lines of the current or last run, or
// its panic, in a form that follows an error message. It returns "" without a log.
func (p *Process) LogTail() string {
	if p.LogFile == "" {
		return ""
	}
	p.mu.Lock()
	start := p.logStart
	p.mu.Unlock()
	lines := lastLines(p.LogFile, start, logTail)
	if len(lines) == 0 {
		return fmt.Sprintf("; its log %s has nothing of this run", p.LogFile)
	}
	return fmt.Sprintf("; its log is %s and ends:\n\t%s", p.LogFile, strings.Join(lines, "\n\t"))
}

// lastLines returns up to n last lines of a file after offset start, or up to n lines
// from the beginning of a panic. It omits empty lines. It returns none if the file
// cannot be read.
func lastLines(path string, start int64, n int) []string {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	const window = 64 << 10
	if info, err := file.Stat(); err == nil {
		_, _ = file.Seek(max(start, info.Size()-window), io.SeekStart)
	}
	content, _ := io.ReadAll(file)
	var lines []string
	for line := range strings.Lines(string(content)) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if len(line) > 500 {
			line = line[:500] + "…"
		}
		lines = append(lines, line)
	}
	// The cause of a panic is at its beginning. Its end is the bottom of a stack.
	panicked := slices.IndexFunc(lines, func(line string) bool {
		return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
	})
	if panicked >= 0 {
		return lines[panicked:min(len(lines), panicked+n)]
	}
	return lines[max(0, len(lines)-n):]
}
