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

// HubCheck stores the missing prerequisites of the enabled drivers. The server stays ready while some are missing,
// since registered clusters and clusters of other drivers do not need them.
type HubCheck struct {
	drivers []Driver
	// problems maps the name of each checked driver to its missing prerequisites, a []string.
	problems sync.Map
}

// NewHubCheck returns a HubCheck of the drivers.
func NewHubCheck(drivers []Driver) *HubCheck { return &HubCheck{drivers: drivers} }

// Run checks each driver until no prerequisite is missing or ctx ends.
func (h *HubCheck) Run(ctx context.Context) {
	var running wait.Group
	for _, driver := range h.drivers {
		running.StartWithContext(ctx, func(ctx context.Context) {
			// An error means that ctx has ended.
			_ = wait.PollUntilContextCancel(ctx, hubCheckPeriod, true, func(ctx context.Context) (bool, error) {
				return h.check(ctx, driver), nil
			})
		})
	}
	running.Wait()
}

// check reports whether no prerequisite is missing. It logs changes.
func (h *HubCheck) check(ctx context.Context, driver Driver) bool {
	bounded, cancel := context.WithTimeout(ctx, hubCheckTimeout)
	defer cancel()
	logger := klog.FromContext(ctx).WithValues("driver", driver.Name())
	problems, err := driver.Check(bounded)
	// A check that exceeds its own deadline is logged. A check that the server's shutdown interrupts is not.
	if ctx.Err() == nil && err != nil {
		logger.Error(err, "Failed to check the hub's prerequisites of the registration driver")
	}
	if err != nil {
		return false // the previous result stays
	}
	hubProblems.WithLabelValues(string(driver.Name())).Set(float64(len(problems)))
	if len(problems) > 0 && !slices.Equal(problems, h.Problems(driver.Name())) {
		logger.Error(nil, "The hub does not meet the prerequisites of the registration driver; accepted clusters get no access", "missing", strings.Join(problems, "; "))
	}
	h.problems.Store(driver.Name(), problems)
	return len(problems) == 0
}

// Problems returns the missing prerequisites of a driver.
func (h *HubCheck) Problems(driver registerv1alpha1.RegistrationDriver) []string {
	stored, _ := h.problems.Load(driver)
	problems, _ := stored.([]string)
	return problems
}
