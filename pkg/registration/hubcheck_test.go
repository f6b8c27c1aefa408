package registration

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
)

// checkedDriver is a Driver with a Check that returns the values of the test.
type checkedDriver struct {
	Driver
	problems []string
	err      error
	checks   int
}

func (*checkedDriver) Name() registerv1alpha1.RegistrationDriver { return registerv1alpha1.DriverCSR }

func (d *checkedDriver) Check(context.Context) ([]string, error) {
	d.checks++
	return d.problems, d.err
}

func TestHubCheck(t *testing.T) {
	driver := &checkedDriver{}
	h := NewHubCheck([]Driver{driver})
	for _, step := range []struct {
		problems []string
		err      error
		done     bool
		want     []string
	}{
		{nil, errors.New("no answer"), false, nil},
		{[]string{"nobody signs"}, nil, false, []string{"nobody signs"}},
		{nil, errors.New("no answer"), false, []string{"nobody signs"}},
		{nil, nil, true, nil},
	} {
		driver.problems, driver.err = step.problems, step.err
		if done := h.check(t.Context(), driver); done != step.done {
			t.Errorf("check() with %v, %v = %t, want %t", step.problems, step.err, done, step.done)
		}
		if got := h.Problems(registerv1alpha1.DriverCSR); !slices.Equal(got, step.want) {
			t.Errorf("Problems() after %v, %v = %q, want %q", step.problems, step.err, got, step.want)
		}
	}
	// No prerequisite is missing, so Run ends by itself.
	h.Run(t.Context())
}

// TestHubCheckIsRepeated checks that a missing prerequisite is looked for every five minutes until it is there.
func TestHubCheckIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &checkedDriver{problems: []string{"nobody signs"}}
		h := NewHubCheck([]Driver{driver})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			h.Run(t.Context())
		}()
		for want := 1; want <= 3; want++ {
			if synctest.Wait(); driver.checks != want || len(h.Problems(registerv1alpha1.DriverCSR)) != 1 {
				t.Errorf("checks = %d, problems = %q, want %d and one", driver.checks, h.Problems(registerv1alpha1.DriverCSR), want)
			}
			time.Sleep(5 * time.Minute)
		}
		synctest.Wait()
		driver.problems = nil
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("Run() continues without a problem, want its end five minutes after the last problem")
		}
		if problems := h.Problems(registerv1alpha1.DriverCSR); len(problems) != 0 {
			t.Errorf("Problems() = %q, want none", problems)
		}
	})
}
