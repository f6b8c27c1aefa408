package visibility

import (
	"context"
	"math/rand/v2"
	"time"

	"k8s.io/klog/v2"
)

const (
	// maxSamples bounds the queue of callers. Further callers are not sampled.
	maxSamples = 64
	// samplesPerSecond and sampleBurst limit the access checks.
	samplesPerSecond = 2
	sampleBurst      = 8
	sampleTimeout    = 5 * time.Second
	// sampleLag is the maximum lag of informers.
	sampleLag = time.Second
	// sampleTries is the number of classes drawn to find one that is allowed and one that
	// is denied.
	sampleTries = 32
)

// sampled is a decision to confirm.
type sampled struct {
	question
	name  string
	allow bool
}

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
			for _, decision := range c.choose(e, known) {
				if c.limiter.Wait(ctx) != nil || c.asks(e.identity) {
					break
				}
				c.confirm(ctx, e, decision)
			}
		}
	}
}

// choose returns a random decision that allows and one that denies.
func (c *Compiler) choose(e *entry, known []Class) []sampled {
	found := e.found.Load()
	if found == nil || len(known) == 0 {
		return nil
	}
	var chosen []sampled
	var allows, denies bool
	for range sampleTries {
		class := known[rand.IntN(len(known))]
		decision := found.allowed.hub.decide(class.Group, class.Resource, class.Namespace)
		sample := sampled{question: listing(class.Group, class.Resource, class.Namespace), allow: decision.All}
		if len(decision.Names) > 0 {
			sample.name, sample.allow = decision.Names[rand.IntN(len(decision.Names))], true
		}
		if sample.allow && !allows || !sample.allow && !denies {
			chosen = append(chosen, sample)
		}
		allows, denies = allows || sample.allow, denies || !sample.allow
	}
	return chosen
}

// confirm compares a decision with the hub's. A difference takes effect only if it lasts longer
// than the lag of the informers and the cache of the authorizer.
func (c *Compiler) confirm(ctx context.Context, e *entry, decision sampled) {
	for _, delay := range []time.Duration{0, sampleLag, sampleLag + c.config.AuthorizerTTL} {
		if delay > 0 && !pause(ctx, delay) {
			return
		}
		askCtx, cancel := context.WithTimeout(ctx, sampleTimeout)
		answer, err := allows(askCtx, c.config.Authorizer, e.identity, decision.question, decision.name)
		cancel()
		if err != nil {
			klog.FromContext(ctx).V(2).Info("Checking a sampled decision failed", "err", err)
			return
		}
		now := Scope{allowed: compileHub(c.hub, e.identity)}.Allows(Object{
			Class: Class{Hub: true, Group: decision.group, Resource: decision.resource, Namespace: decision.namespace},
			Name:  decision.name,
		})
		if now == answer {
			return
		}
		decision.allow = now
	}
	disagreements.Inc()
	klog.FromContext(ctx).Error(nil, "The hub's decisions differ from its RBAC: from now on the server sends a SubjectAccessReview for each decision, which is slower. "+
		"If this hub has another authorizer, set the search visibility to Reviews",
		"user", e.identity.GetName(), "groups", e.identity.GetGroups(), "verb", verbList, "group", decision.group, "resource", decision.resource,
		"namespace", decision.namespace, "name", decision.name, "rbacAllows", decision.allow)
	c.distrust()
}
