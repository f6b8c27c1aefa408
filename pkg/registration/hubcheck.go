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

// Checker is a Driver that checks the hub's prerequisites before a cluster is accepted.
type Checker interface {
	Driver
	// Check returns the missing prerequisites, each with its remedy. An error means that they are unknown.
	Check(ctx context.Context) ([]string, error)
}

// HubCheck stores the missing prerequisites of the enabled drivers. The server stays ready while some are missing,
// since registered clusters and clusters of other drivers do not need them.
type HubCheck struct {
	checkers []Checker
	// problems maps the name of each checked driver to its missing prerequisites, a []string.
	problems sync.Map
}

// NewHubCheck returns a HubCheck of the drivers that implement Checker.
func NewHubCheck(drivers []Driver) *HubCheck {
	h := &HubCheck{}
	for _, driver := range drivers {
		if checker, ok := driver.(Checker); ok {
			h.checkers = append(h.checkers, checker)
		}
	}
	return h
}

// Run checks each driver until no prerequisite is missing or ctx ends.
func (h *HubCheck) Run(ctx context.Context) {
	registerMetrics()
	var running wait.Group
	for _, checker := range h.checkers {
		running.StartWithContext(ctx, func(ctx context.Context) {
			// An error means that ctx has ended.
			_ = wait.PollUntilContextCancel(ctx, hubCheckPeriod, true, func(ctx context.Context) (bool, error) {
				return h.check(ctx, checker), nil
			})
		})
	}
	running.Wait()
}

// check reports whether no prerequisite is missing. It logs changes.
func (h *HubCheck) check(ctx context.Context, checker Checker) bool {
	bounded, cancel := context.WithTimeout(ctx, hubCheckTimeout)
	defer cancel()
	logger := klog.FromContext(ctx).WithValues("driver", checker.Name())
	problems, err := checker.Check(bounded)
	// A check that exceeds its own deadline is logged. A check that the server's shutdown interrupts is not.
	if ctx.Err() == nil && err != nil {
		logger.Error(err, "Failed to check the hub's prerequisites of the registration driver")
	}
	if err != nil {
		return false // the previous result stays
	}
	hubProblems.WithLabelValues(string(checker.Name())).Set(float64(len(problems)))
	if len(problems) > 0 && !slices.Equal(problems, h.Problems(checker.Name())) {
		logger.Error(nil, "The hub does not meet the prerequisites of the registration driver; accepted clusters get no access", "missing", strings.Join(problems, "; "))
	}
	h.problems.Store(checker.Name(), problems)
	return len(problems) == 0
}

// Problems returns the missing prerequisites of a driver.
func (h *HubCheck) Problems(driver registerv1alpha1.RegistrationDriver) []string {
	stored, _ := h.problems.Load(driver)
	problems, _ := stored.([]string)
	return problems
}
