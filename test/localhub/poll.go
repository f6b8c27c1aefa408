package localhub

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/wait"
)

// poll calls attempt until it returns no error. If retry is set, poll calls attempt
// again; if final is set, poll returns it. If ctx ends first, poll returns an error
// with the last retry error.
func poll(ctx context.Context, attempt func(context.Context) (retry, final error)) error {
	delays := wait.Backoff{Duration: pollInterval, Factor: 1.2, Steps: 100, Cap: 4 * pollInterval}
	var last error
	err := delays.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		retry, final := attempt(ctx)
		if final != nil {
			return false, final
		}
		// The error of an attempt that the deadline interrupted hides the cause.
		if retry != nil && (ctx.Err() == nil || last == nil) {
			last = retry
		}
		return retry == nil, nil
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("not in time: %w", errors.Join(context.Cause(ctx), last))
	}
	return err
}
