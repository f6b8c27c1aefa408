package visibility

import (
	"context"
	"math/rand/v2"
	"time"

	"k8s.io/klog/v2"
)

const (
	// maxSamples bounds the callers that wait for a sample; more are not sampled.
	maxSamples = 64
	// samplesPerSecond and sampleBurst bound the questions to the hub.
	samplesPerSecond = 2
	sampleBurst      = 8
	sampleTimeout    = 5 * time.Second
	// sampleLag is how long informers may be behind.
	sampleLag = time.Second
	// sampleTries is how many classes are looked at for one that is allowed and one that is not.
	sampleTries = 32
)

// sampled is a decision to confirm.
type sampled struct {
	class reviewedClass
	name  string
	allow bool
}

// sample has some of what was compiled for an identity confirmed by the hub, later
// and seldom: it guards against a hub that decides otherwise than its RBAC says.
func (c *Compiler) sample(e *entry) {
	if c.config.Mode != Auto {
		return
	}
	select {
	case c.samples <- e:
	default: // others are sampled
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
				logger.V(2).Info("There is nothing to sample decisions from", "reason", err)
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

// choose picks, by chance, a decision that allows and one that does not.
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
		one := sampled{class: reviewedClass{class.Group, class.Resource, class.Namespace}, allow: decision.All}
		if len(decision.Names) > 0 {
			one.name, one.allow = decision.Names[rand.IntN(len(decision.Names))], true
		}
		if one.allow && !allows || !one.allow && !denies {
			chosen = append(chosen, one)
		}
		allows, denies = allows || one.allow, denies || !one.allow
	}
	return chosen
}

// confirm asks the hub for a decision. A difference counts if it outlasts the lag
// of the informers and what the authorizer remembers.
func (c *Compiler) confirm(ctx context.Context, e *entry, decision sampled) {
	for _, pause := range []time.Duration{0, sampleLag, sampleLag + c.config.AuthorizerTTL} {
		if pause > 0 && !c.pause(ctx, pause) {
			return
		}
		askCtx, cancel := context.WithTimeout(ctx, sampleTimeout)
		answer, err := allows(askCtx, c.config.Authorizer, e.identity, verbList, decision.class, decision.name)
		cancel()
		if err != nil {
			klog.FromContext(ctx).V(2).Info("A sampled decision could not be confirmed", "reason", err)
			return
		}
		now := Scope{allowed: c.policy.compileHub(e.identity)}.Allows(Object{
			Class: Class{Hub: true, Group: decision.class.group, Resource: decision.class.resource, Namespace: decision.class.namespace},
			Name:  decision.name,
		})
		if now == answer {
			return
		}
		decision.allow = now
	}
	disagreements.Inc()
	klog.FromContext(ctx).Error(nil, "The hub decides otherwise than its RBAC says: from now on it is asked for what each caller may find, which is slower. "+
		"Set the search visibility to Reviews if another authorizer decides on this hub",
		"user", e.identity.GetName(), "groups", e.identity.GetGroups(), "verb", verbList, "group", decision.class.group, "resource", decision.class.resource,
		"namespace", decision.class.namespace, "name", decision.name, "rbacAllows", decision.allow)
	c.distrust()
}
