package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestPollReturnsTheLastReason(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := Poll(ctx, func(context.Context) (string, error) { return "no Pod", nil }); err == nil || !strings.Contains(err.Error(), "no Pod") {
		t.Errorf("Poll() until the timeout = %v, want an error that contains the last reason", err)
	}
	final := fmt.Errorf("permanent error")
	if err := Poll(t.Context(), func(context.Context) (string, error) { return "", final }); !errors.Is(err, final) {
		t.Errorf("Poll() with a permanent error = %v, want %v", err, final)
	}
}
