package membership

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
)

// TestInsist checks that an operation is repeated until it succeeds, with its problem in Waiting, and that an error that
// waiting cannot resolve is final.
func TestInsist(t *testing.T) {
	for name, test := range map[string]struct {
		errs []error
		want error
	}{
		"no error":         {nil, nil},
		"temporary errors": {[]error{errors.New("one"), errors.New("two")}, nil},
		"a final error":    {[]error{errors.New("one"), fmt.Errorf("secret: %w", errRaised), errors.New("three")}, errRaised},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistrar(t, Config{})
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				err := r.insist(t.Context(), "cannot write", func(context.Context) error {
					if calls++; calls > len(test.errs) {
						return nil
					}
					if calls > 1 && r.Waiting() != "cannot write: "+test.errs[calls-2].Error() {
						t.Errorf("Waiting() = %q, want the problem and the error", r.Waiting())
					}
					return test.errs[calls-1]
				})
				if !errors.Is(err, test.want) || calls > len(test.errs)+1 || test.want != nil && calls != 2 {
					t.Errorf("insist() = %v after %d calls, want %v", err, calls, test.want)
				}
			})
		})
	}
}
