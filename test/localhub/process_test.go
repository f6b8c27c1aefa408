package localhub_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// parentEnv is the environment variable that makes this test binary run runParent.
const parentEnv = "LOCALHUB_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentEnv) != "" {
		runParent()
		return
	}
	os.Exit(m.Run())
}

// shell returns a process that runs a shell script.
func shell(t *testing.T, script string) *localhub.Process {
	t.Helper()
	p := &localhub.Process{
		Name:    "script",
		Path:    "/bin/sh",
		Args:    []string{"-c", script},
		LogFile: filepath.Join(t.TempDir(), "script.log"),
	}
	t.Cleanup(func() { _ = p.Kill() })
	return p
}

func TestFailedStartNamesProcessReasonAndLog(t *testing.T) {
	tests := map[string]struct {
		script string
		want   []string
	}{
		"exits":       {script: "echo no such disk; exit 3", want: []string{"start script", "exit status 3", "no such disk", "script.log"}},
		"never ready": {script: "echo waiting; exec sleep 60", want: []string{"start script", "context canceled", "not yet", "waiting", "script.log"}},
		"panics":      {script: "echo 'panic: no luck'; seq 100; exit 2", want: []string{"panic: no luck", "exit status 2"}},
		"no output":   {script: "exit 1", want: []string{"script.log", "nothing of this run"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			p := shell(t, test.script)
			p.Ready = func(context.Context) error {
				if content, err := os.ReadFile(p.LogFile); err == nil && strings.Contains(string(content), "waiting") {
					cancel()
				}
				return errors.New("not yet")
			}
			err := p.Start(ctx)
			if err == nil {
				t.Fatal("Start() = nil, want an error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("Start() = %v, want an error with %q", err, want)
				}
			}
			if p.Running() {
				t.Error("Running() after a failed start = true, want false")
			}
		})
	}
}

// runParent starts a process, prints its id and waits to be killed.
func runParent() {
	p := &localhub.Process{Name: "child", Path: "/bin/sleep", Args: []string{"60"}}
	if err := p.Start(context.Background()); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(p.PID())
	// While this goroutine blocks, the runtime can end idle threads. The thread that forked the
	// child must not be among them.
	<-p.Exited()
}

func TestChildDiesWithAKilledParent(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentEnv+"=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = parent.Process.Kill() }()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(child, 0); err != nil {
		t.Fatalf("Kill(%d, 0) of the child = %v, want a running process", child, err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	await.True(t, fmt.Sprintf("child %d of the killed parent is killed", child), func() bool { return gone(child) })
}

// gone reports whether a process has ended. It counts a zombie as ended, because the process
// that inherited it may not wait for it.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}
