package visibility

import (
	"context"
	"math/rand/v2"
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

// authorizers is the result of a review: whether the hub asks another authorizer than RBAC. The time is zero before the hub
// has answered.
type authorizers struct {
	others bool
	at     time.Time
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
			if time.Since(c.authorizers.Load().at) > modeValidity {
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

const (
	// maxSamples bounds the queue of callers. Further callers are not sampled.
	maxSamples = 64
	// samplesPerSecond and sampleBurst limit the access checks.
	samplesPerSecond = 2
	sampleBurst      = 8
	sampleTimeout    = 5 * time.Second
	// sampleTries bounds the search for a class that RBAC allows.
	sampleTries = 32
	// sampleLag is the maximum lag of informers.
	sampleLag = time.Second
)

// sample schedules a comparison of some decisions for an identity with the hub, to detect
// decisions of the hub that differ from its RBAC.
func (c *Compiler) sample(e *entry) {
	if c.config.Mode != Auto {
		return
	}
	select {
	case c.samples <- e:
	default: // the queue is full
	}
}

func (c *Compiler) confirmSamples(ctx context.Context) {
	logger := klog.FromContext(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-c.samples:
			readCtx, cancel := context.WithTimeout(ctx, sampleTimeout)
			known, _, err := c.classes.get(readCtx)
			cancel()
			if err != nil {
				logger.V(2).Info("Reading the resources of the hub failed, so no decisions are sampled", "err", err)
				continue
			}
			if len(known) > 0 && c.limiter.Wait(ctx) == nil && !c.asks(e.identity) {
				c.confirm(ctx, e, c.sampled(e, known))
			}
		}
	}
}

// sampled returns a random class of the hub. It prefers a class that RBAC allows: most callers may list few classes, and only
// a decision that allows too much shows objects by mistake.
func (c *Compiler) sampled(e *entry, known []Class) (class Class) {
	scope := c.byRBAC(e)
	for range sampleTries {
		class = known[rand.IntN(len(known))]
		class.Hub = true
		if decision := scope.Decide(class); decision.All || len(decision.Names) > 0 {
			break
		}
	}
	return class
}

// confirm compares the decision about a class with the hub's, or that about one of its names. A difference takes effect only
// if it lasts longer than the lag of the informers and the cache of the authorizer.
func (c *Compiler) confirm(ctx context.Context, e *entry, class Class) {
	object := Object{Class: class}
	if names := c.byRBAC(e).Decide(class).Names; len(names) > 0 {
		object.Name = names[rand.IntN(len(names))]
	}
	allowed := false
	for _, delay := range []time.Duration{0, sampleLag, sampleLag + c.config.AuthorizerTTL} {
		if delay > 0 && !pause(ctx, delay) {
			return
		}
		askCtx, cancel := context.WithTimeout(ctx, sampleTimeout)
		answer, err := allows(askCtx, c.config.Authorizer, e.identity, listing(class.Group, class.Resource, class.Namespace), object.Name)
		cancel()
		if err != nil {
			klog.FromContext(ctx).V(2).Info("Checking a sampled decision failed", "err", err)
			return
		}
		if allowed = c.byRBAC(e).Allows(object); allowed == answer {
			return
		}
	}
	disagreements.Inc()
	klog.FromContext(ctx).Error(nil, "The hub's decisions differ from its RBAC: from now on the server sends a SubjectAccessReview for each decision, which is slower. "+
		"If this hub has another authorizer, set the search visibility to Reviews",
		"user", e.identity.GetName(), "groups", e.identity.GetGroups(), "verb", verbList, "group", class.Group, "resource", class.Resource,
		"namespace", class.Namespace, "name", object.Name, "rbacAllows", allowed)
	c.distrust()
}

// byRBAC returns the permissions of a caller on the hub by its RBAC.
func (c *Compiler) byRBAC(e *entry) Scope { return Scope{allowed: compileHub(c.hub, e.identity)} }
