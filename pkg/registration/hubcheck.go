package registration

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
)

const (
	hubCheckPeriod  = 5 * time.Minute
	hubCheckTimeout = 30 * time.Second
)

// Checker is a Driver that finds out, before any cluster is accepted, whether the hub has
// what the driver needs.
type Checker interface {
	Driver
	// Check returns what the hub lacks, each with its remedy. An error means that it is
	// not known.
	Check(ctx context.Context) ([]string, error)
}

// HubCheck keeps what the hub lacks for the drivers that it offers. The server stays ready
// meanwhile: clusters that are registered already do not need it, nor those of another driver.
type HubCheck struct {
	checkers []Checker

	mu       sync.Mutex
	problems map[registerv1alpha1.RegistrationDriver][]string
}

// NewHubCheck returns a HubCheck of those of the drivers that are Checkers.
func NewHubCheck(drivers []Driver) *HubCheck {
	h := &HubCheck{problems: map[registerv1alpha1.RegistrationDriver][]string{}}
	for _, driver := range drivers {
		if checker, ok := driver.(Checker); ok {
			h.checkers = append(h.checkers, checker)
		}
	}
	return h
}

// Run checks each driver until the hub lacks nothing, or until ctx ends.
func (h *HubCheck) Run(ctx context.Context) {
	registerMetrics()
	var running wait.Group
	for _, checker := range h.checkers {
		running.StartWithContext(ctx, func(ctx context.Context) {
			// The only error is that ctx has ended.
			_ = wait.PollUntilContextCancel(ctx, hubCheckPeriod, true, func(ctx context.Context) (bool, error) {
				return h.check(ctx, checker), nil
			})
		})
	}
	running.Wait()
}

// check reports whether the hub is known to lack nothing. It logs what has changed.
func (h *HubCheck) check(ctx context.Context, checker Checker) bool {
	bounded, cancel := context.WithTimeout(ctx, hubCheckTimeout)
	defer cancel()
	logger := klog.FromContext(ctx).WithValues("driver", checker.Name())
	problems, err := checker.Check(bounded)
	// A check that runs into its own deadline is logged; one that the end of the server interrupts is not.
	if ctx.Err() == nil && err != nil {
		logger.Error(err, "It is not known whether the hub has what the registration driver needs")
	}
	if err != nil {
		return false // what was known before stays
	}
	hubProblems.WithLabelValues(string(checker.Name())).Set(float64(len(problems)))
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(problems, h.problems[checker.Name()]) && len(problems) > 0 {
		logger.Error(nil, "The hub lacks what the registration driver needs, so that clusters which are accepted get no access", "missing", strings.Join(problems, "; "))
	}
	h.problems[checker.Name()] = problems
	return len(problems) == 0
}

// Problems returns what the hub is known to lack for a driver.
func (h *HubCheck) Problems(driver registerv1alpha1.RegistrationDriver) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.problems[driver])
}
