package visibility

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/klog/v2"
)

const (
	modePeriod  = time.Minute
	modeTimeout = 10 * time.Second
	// modeValidity is the time for which a response is used if later requests fail.
	modeValidity = 5 * time.Minute
)

// asks reports whether the Scope of an identity comes from reviews.
func (c *Compiler) asks(identity user.Info) bool {
	switch c.config.Mode {
	case RBAC:
		return false
	case Reviews:
		return true
	}
	// For nodes, the node authorizer decides in addition to RBAC.
	return c.distrusted.Load() || !c.rbacDecides.Load() || slices.Contains(identity.GetGroups(), user.NodesGroup)
}

// authorizers is the result of a review.
type authorizers struct {
	others bool
	at     time.Time
}

// OtherAuthorizers reports whether the hub asks another authorizer than RBAC, and the time of the last review. The time is zero
// before the hub has answered.
func (c *Compiler) OtherAuthorizers() (others bool, reviewed time.Time) {
	if last := c.authorizers.Load(); last != nil {
		return last.others, last.at
	}
	return false, time.Time{}
}

// watchMode periodically reviews whether RBAC alone decides on the hub. Until the first
// response, it assumes that RBAC alone does not decide.
func (c *Compiler) watchMode(ctx context.Context) {
	logger := klog.FromContext(ctx)
	for retry := modeRetry(); ; {
		askCtx, cancel := context.WithTimeout(ctx, modeTimeout)
		others, err := c.config.ReviewAuthorizers(askCtx)
		cancel()
		if ctx.Err() != nil {
			return
		}
		delay := modePeriod
		if err == nil {
			retry = modeRetry()
			c.authorizers.Store(&authorizers{others, time.Now()})
			c.setRBACDecides(logger, !others)
		} else {
			if _, at := c.OtherAuthorizers(); time.Since(at) > modeValidity {
				c.setRBACDecides(logger, false)
			}
			logger.Error(err, "Checking whether RBAC alone decides on the hub failed")
			delay = retry.Step()
		}
		c.asked.Store(true)
		if !pause(ctx, delay) {
			return
		}
	}
}

func modeRetry() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 16, Cap: modePeriod}
}

func (c *Compiler) setRBACDecides(logger klog.Logger, decides bool) {
	if c.rbacDecides.Swap(decides) == decides {
		return
	}
	logger.Info("The set of authorizers that decide about lists on the hub has changed", "onlyRBAC", decides)
	c.observeMode()
	c.interests.touchAll()
}

// distrust makes all later Scopes come from reviews.
func (c *Compiler) distrust() {
	if c.distrusted.Swap(true) {
		return
	}
	c.observeMode()
	c.interests.touchAll()
}

func (c *Compiler) observeMode() {
	value := 0.0
	if c.asks(&user.DefaultInfo{}) {
		value = 1
	}
	asksReviews.Set(value)
}
