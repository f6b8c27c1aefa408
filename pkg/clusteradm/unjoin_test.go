package clusteradm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/agent/serviceaccount"
)

// The selector of clusteradm must match the labels that the agent sets.
func TestAccountsSelectorMatchesAgentLabels(t *testing.T) {
	if selector := accountsSelector("hash", "c1"); !strings.HasSuffix(selector, "="+serviceaccount.Identity("hash", "c1")) {
		t.Errorf("accountsSelector(hash, c1) = %q, want suffix %q", selector, "="+serviceaccount.Identity("hash", "c1"))
	}
}

func TestPollReturnsTheLastReason(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := poll(ctx, func(context.Context) (string, error) { return "no Pod", nil }); err == nil || !strings.Contains(err.Error(), "no Pod") {
		t.Errorf("poll() until the timeout = %v, want an error that contains the last reason", err)
	}
	final := fmt.Errorf("permanent error")
	if err := poll(t.Context(), func(context.Context) (string, error) { return "", final }); !errors.Is(err, final) {
		t.Errorf("poll() with a permanent error = %v, want %v", err, final)
	}
}
