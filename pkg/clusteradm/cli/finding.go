package cli

import (
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The states of a finding.
const (
	StateOK      = "OK"
	StateWarning = "Warning"
	StateBad     = "Bad"
	// StateUnknown is the state of what could not be checked.
	StateUnknown = "Unknown"
)

// Finding is one result of a check.
type Finding struct {
	State   string `json:"state"`
	Subject string `json:"subject"`
	Cause   string `json:"cause,omitempty"`
	Remedy  string `json:"remedy,omitempty"`
}

// String returns the finding as one printable line.
func (f Finding) String() string {
	line := fmt.Sprintf("%-8s %s", f.State, f.Subject)
	if f.Cause != "" {
		line += ": " + f.Cause
	}
	if f.Remedy != "" {
		line += "; to do: " + f.Remedy
	}
	return Printable(line)
}

// Healthy returns a finding without a problem.
func Healthy(subject, detail string) Finding { return Finding{StateOK, subject, detail, ""} }

// Warning returns a finding about something that waits, is late, or will fail soon.
func Warning(subject, cause, remedy string) Finding {
	return Finding{StateWarning, subject, cause, remedy}
}

// Bad returns a finding about something that does not work.
func Bad(subject, cause, remedy string) Finding { return Finding{StateBad, subject, cause, remedy} }

// Unknown returns the finding of a check that failed with err. If a permission is missing, the finding names it.
func Unknown(subject string, err error) Finding {
	remedy := "run the command again; if it fails again, read the log of the server"
	if apierrors.IsForbidden(err) {
		remedy = "grant the permission, or run the command as an administrator"
	}
	return Finding{State: StateUnknown, Subject: subject, Cause: err.Error(), Remedy: remedy}
}

// CountBad returns the number of bad findings.
func CountBad(findings []Finding) int {
	count := 0
	for _, f := range findings {
		if f.State == StateBad {
			count++
		}
	}
	return count
}

// Refuse prints findings. It returns an error if one of them is bad.
func (e Environment) Refuse(findings []Finding) error {
	const shown = 50
	for _, f := range findings[:min(len(findings), shown)] {
		e.Say("%s", f)
	}
	if len(findings) > shown {
		e.Say("… and %d more", len(findings)-shown)
	}
	if problems := CountBad(findings); problems > 0 {
		return fmt.Errorf("%d problems; nothing was changed on managed clusters", problems)
	}
	return nil
}

// SortBySubject sorts findings by their subjects.
func SortBySubject(findings []Finding) {
	slices.SortFunc(findings, func(a, b Finding) int { return strings.Compare(a.Subject, b.Subject) })
}

// Abridged returns the first of many findings, and the number of the others as the last one.
func Abridged(findings []Finding, what string) []Finding {
	if len(findings) <= maxListed {
		return findings
	}
	rest := findings[maxListed:]
	state := StateWarning
	if CountBad(rest) > 0 {
		state = StateBad
	}
	return append(slices.Clone(findings[:maxListed]), Finding{
		State: state, Subject: fmt.Sprintf("%d more %s", len(rest), what), Cause: "not listed", Remedy: "correct those listed, and run the command again",
	})
}
