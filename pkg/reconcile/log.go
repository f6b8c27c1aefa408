package reconcile

import (
	"context"
	"errors"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

// IgnoreCanceled keeps requests that end because the program stops from being logged as errors. client-go logs each watch
// that it cancels. Programs call it once at the start.
func IgnoreCanceled() {
	log := utilruntime.ErrorHandlers[0]
	utilruntime.ErrorHandlers[0] = func(ctx context.Context, err error, message string, keysAndValues ...any) {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return
		}
		// The logged line stays that of the caller.
		log(klog.NewContext(ctx, klog.FromContext(ctx).WithCallDepth(1)), err, message, keysAndValues...)
	}
}
