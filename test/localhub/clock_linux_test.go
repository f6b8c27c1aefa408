package localhub

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"open-cluster-management.io/hub-apiserver/test/await"
)

// clockEnv makes this test program print the Unix time again and again.
const clockEnv = "LOCALHUB_PRINT_CLOCK"

func init() {
	if os.Getenv(clockEnv) == "" {
		return
	}
	for {
		fmt.Println(time.Now().Unix())
		time.Sleep(10 * time.Millisecond)
	}
}

func TestShiftClock(t *testing.T) {
	if os.Getuid() != 0 || runtime.GOARCH != "amd64" {
		t.Skip("writing the memory of another process requires root, and the code is for amd64")
	}
	log := filepath.Join(t.TempDir(), "log")
	process := &Process{Name: "clock", Path: os.Args[0], Env: []string{clockEnv + "=1"}, LogFile: log}
	if err := process.Launch(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Kill() })
	for _, offset := range []time.Duration{0, time.Hour, -time.Hour, 0} {
		if err := process.ShiftClock(offset); err != nil {
			t.Fatal(err)
		}
		await.Eventually(t, fmt.Sprintf("the clock is shifted by %s", offset), func() error {
			content, err := os.ReadFile(log)
			if err != nil {
				return err
			}
			lines := strings.Split(string(bytes.TrimSpace(content)), "\n")
			seen, err := strconv.ParseInt(lines[len(lines)-1], 10, 64)
			if err != nil {
				return err
			}
			if got := time.Until(time.Unix(seen, 0)); (got - offset).Abs() > time.Minute {
				return fmt.Errorf("offset of the clock = %s, want %s", got, offset)
			}
			return nil
		})
	}
}
