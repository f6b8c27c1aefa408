package registration

import (
	"context"
	"errors"
	"slices"
	"testing"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
)

// checkedDriver is a Driver with a Check that returns the values of the test.
type checkedDriver struct {
	Driver
	problems []string
	err      error
}

func (*checkedDriver) Name() registerv1alpha1.RegistrationDriver { return registerv1alpha1.DriverCSR }

func (d *checkedDriver) Check(context.Context) ([]string, error) { return d.problems, d.err }

func TestHubCheck(t *testing.T) {
	registerMetrics()
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
