package clusteradm

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The states of a finding.
const (
	stateOK      = "OK"
	stateWarning = "Warning"
	stateBad     = "Bad"
	// stateUnknown is the state of what could not be checked.
	stateUnknown = "Unknown"

	checkTimeout = 15 * time.Second
	// maxListed is the maximum number of findings of one kind, and of names in a finding.
	maxListed = 10
)

// finding is one result of a check.
type finding struct {
	State   string `json:"state"`
	Subject string `json:"subject"`
	Cause   string `json:"cause,omitempty"`
	Remedy  string `json:"remedy,omitempty"`
}

func healthy(subject, detail string) finding {
	return finding{State: stateOK, Subject: subject, Cause: detail}
}

func warning(subject, cause, remedy string) finding {
	return finding{State: stateWarning, Subject: subject, Cause: cause, Remedy: remedy}
}

func bad(subject, cause, remedy string) finding {
	return finding{State: stateBad, Subject: subject, Cause: cause, Remedy: remedy}
}

// unknown returns the finding of a check that failed with err. If a permission is missing, the
// finding names it.
func unknown(subject string, err error) finding {
	remedy := "run the command again; if it fails again, read the log of the server"
	if apierrors.IsForbidden(err) {
		remedy = "grant the permission, or run the command as an administrator"
	}
	return finding{State: stateUnknown, Subject: subject, Cause: err.Error(), Remedy: remedy}
}

// check returns the findings of one subject. It ends with ctx.
type check func(ctx context.Context) []finding

// runChecks runs the checks concurrently, each with a deadline, and returns their findings in the
// order of the checks.
func runChecks(ctx context.Context, checks ...check) []finding {
	results := make([][]finding, len(checks))
	var wg sync.WaitGroup
	for i, run := range checks {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, checkTimeout)
			defer cancel()
			results[i] = run(ctx)
		})
	}
	wg.Wait()
	return slices.Concat(results...)
}

// printFindings prints the findings as lines or as JSON. It returns an error if one of them is bad.
func printFindings(out io.Writer, output string, findings []finding) error {
	if output == outputJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(map[string]any{"findings": findings}); err != nil {
			return err
		}
	}
	count := 0
	for _, f := range findings {
		if f.State == stateBad {
			count++
		}
		if output == outputJSON {
			continue
		}
		line := fmt.Sprintf("%-8s %s", f.State, f.Subject)
		if f.Cause != "" {
			line += ": " + f.Cause
		}
		if f.Remedy != "" {
			line += "; to do: " + f.Remedy
		}
		say(out, "%s", printable(strings.TrimSpace(line)))
	}
	if count > 0 {
		return fmt.Errorf("%d of %d findings are bad", count, len(findings))
	}
	return nil
}

// abridged returns at most maxListed findings, and the number of the others as the last one.
func abridged(findings []finding, what string) []finding {
	if len(findings) <= maxListed {
		return findings
	}
	rest := findings[maxListed:]
	state := stateWarning
	if slices.ContainsFunc(rest, func(f finding) bool { return f.State == stateBad }) {
		state = stateBad
	}
	return append(slices.Clone(findings[:maxListed]), finding{
		State: state, Subject: fmt.Sprintf("%d more %s", len(rest), what), Cause: "not listed", Remedy: "correct those listed, and run the command again",
	})
}

// some joins at most maxListed names.
func some(names []string) string {
	if len(names) <= maxListed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), len(names)-maxListed)
}
