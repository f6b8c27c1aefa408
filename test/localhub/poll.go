package localhub

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/wait"
)

// poll calls attempt until it returns no error. The first error of attempt is a
// reason to try again, the second one is final. When ctx ends first, poll
// returns the reason that was given last.
func poll(ctx context.Context, attempt func(context.Context) (retry, final error)) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		retry, final := attempt(ctx)
		if final != nil {
			return false, final
		}
		// An attempt that the deadline cut short has no reason to tell.
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
