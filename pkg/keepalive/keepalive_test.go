package keepalive

import (
	"os"
	"testing"
)

func TestUse(t *testing.T) {
	for name := range timeouts {
		t.Setenv(name, "")
	}
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "7")
	if err := Use(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "5", "HTTP2_PING_TIMEOUT_SECONDS": "7"} {
		if got := os.Getenv(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
}
