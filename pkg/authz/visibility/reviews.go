package visibility

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// parallelReviews is how many questions one caller has the hub asked at a time.
const parallelReviews = 16

// answers are what the hub has said about an identity. Nothing is concluded from
// them that was not asked, but that what may be listed in all namespaces may be
// listed in each.
type answers struct {
	// version is that of the classes.
	version uint64
	// classes has a Decision for each class that was asked for; those without a
	// namespace are cluster-wide.
	classes map[reviewedClass]Decision
	// anyView and views are whether managedclusterviews may be created, everywhere
	// and by cluster.
	anyView bool
	views   map[string]bool
}

type reviewedClass struct{ group, resource, namespace string }

func (a *answers) whole() bool { return false }

func (a *answers) decide(group, resource, namespace string) Decision {
	wide := a.classes[reviewedClass{group, resource, ""}]
	if wide.All || namespace == "" {
		return wide
	}
	return a.classes[reviewedClass{group, resource, namespace}]
}

// review asks the hub what an identity may find. Answers that hold still are not
// asked for again.
func (c *Compiler) review(ctx context.Context, e *entry, now *finding) error {
	ctx, cancel := context.WithTimeout(ctx, c.config.ReviewTimeout)
	defer cancel()
	started := c.clock.Now()
	known, version, err := c.classes.get(ctx)
	if err != nil {
		return err
	}
	r := &review{
		authorizer: c.config.Authorizer,
		identity:   e.identity,
		named:      c.policy.compile(hubSubjects(e.identity), nil).grants,
		answers:    &answers{version: version, classes: map[reviewedClass]Decision{}, views: map[string]bool{}},
	}
	before := e.found.Load()
	if before != nil && before.answers != nil && before.changes == now.changes && started.Before(before.expires) {
		r.before = before.answers
		now.expires = before.expires
	}
	if err := r.run(ctx, known, c.config.Clusters()); err != nil {
		return err
	}
	if r.before == nil {
		// Callers must not have the hub asked without a break.
		ttl := c.config.ReviewTTL
		if before != nil && before.changes != now.changes {
			// The hub's own informers may know of a change later than ours.
			ttl = min(ttl, sampleLag)
		}
		now.expires = c.clock.Now().Add(max(ttl, 10*c.clock.Since(started)))
	}
	now.answers, now.allowed = r.answers, r.answers.allowed()
	return nil
}

// allowed is what the answers allow.
func (a *answers) allowed() *allowed {
	result := &allowed{hub: a, anyView: a.anyView, views: map[string]struct{}{}}
	digest := newDigest()
	digest.bytes([]byte(byReviews))
	digest.flag(a.anyView)
	for _, cluster := range slices.Sorted(maps.Keys(a.views)) {
		if a.views[cluster] {
			result.views[cluster] = struct{}{}
			digest.bytes([]byte(cluster))
		}
	}
	keys := slices.SortedFunc(maps.Keys(a.classes), reviewedClass.compare)
	for _, key := range keys {
		if d := a.classes[key]; d.All || len(d.Names) > 0 {
			digest.strings([]string{key.group, key.resource, key.namespace})
			digest.flag(d.All)
			digest.strings(d.Names)
		}
	}
	result.fingerprint = digest.sum()
	return result
}

// review is one round of questions.
type review struct {
	authorizer authorizer.Authorizer
	identity   user.Info
	// named are the rules of RBAC, for the names that are asked for. Another
	// authorizer that allows single names therefore shows less, never more.
	named *grants
	// before are answers that hold still; nil if there are none.
	before *answers

	mu      sync.Mutex
	answers *answers
}

func (r *review) run(ctx context.Context, known []Class, clusters []string) error {
	wide, spaced := map[reviewedClass]struct{}{}, map[reviewedClass]struct{}{}
	for i := range known {
		class := &known[i]
		wide[reviewedClass{class.Group, class.Resource, ""}] = struct{}{}
		if class.Namespace != "" {
			spaced[reviewedClass{class.Group, class.Resource, class.Namespace}] = struct{}{}
		}
	}
	if err := r.each(ctx, maps.Keys(wide), r.askClass); err != nil {
		return err
	}
	maps.DeleteFunc(spaced, func(key reviewedClass, _ struct{}) bool {
		return r.answers.classes[reviewedClass{key.group, key.resource, ""}].All
	})
	if err := r.each(ctx, maps.Keys(spaced), r.askClass); err != nil {
		return err
	}
	return r.askClusters(ctx, clusters)
}

// each asks about classes, some at a time, and stops at the first error.
func (r *review) each(ctx context.Context, keys func(func(reviewedClass) bool), ask func(context.Context, reviewedClass) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelReviews)
	for key := range keys {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error { return ask(ctx, key) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return nil
}

func (r *review) askClass(ctx context.Context, key reviewedClass) error {
	if r.before != nil {
		if decision, found := r.before.classes[key]; found {
			r.set(key, decision)
			return nil
		}
	}
	all, err := r.allows(ctx, verbList, key, "")
	if err != nil {
		return err
	}
	decision := Decision{All: all}
	if !all {
		for _, name := range r.named.decide(key.group, key.resource, key.namespace).Names {
			one, err := r.allows(ctx, verbList, key, name)
			if err != nil {
				return err
			}
			if one {
				decision.Names = append(decision.Names, name)
			}
		}
	}
	r.set(key, decision)
	return nil
}

func (r *review) set(key reviewedClass, decision Decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers.classes[key] = decision
}

func (r *review) askClusters(ctx context.Context, clusters []string) error {
	view := reviewedClass{group: viewGroup, resource: viewResource}
	if r.before != nil {
		r.answers.anyView = r.before.anyView
	} else {
		any, err := r.allows(ctx, verbCreate, view, "")
		if err != nil {
			return err
		}
		r.answers.anyView = any
	}
	if r.answers.anyView {
		return nil
	}
	ask := func(ctx context.Context, key reviewedClass) error {
		var allowed, found bool
		if r.before != nil {
			allowed, found = r.before.views[key.namespace]
		}
		if !found {
			var err error
			if allowed, err = r.allows(ctx, verbCreate, key, ""); err != nil {
				return err
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.answers.views[key.namespace] = allowed
		return nil
	}
	return r.each(ctx, func(yield func(reviewedClass) bool) {
		for _, cluster := range clusters {
			key := view
			key.namespace = cluster
			// Without a name the question would be about all of them.
			if cluster != "" && !yield(key) {
				return
			}
		}
	}, ask)
}

func (r *review) allows(ctx context.Context, verb string, key reviewedClass, name string) (bool, error) {
	return allows(ctx, r.authorizer, r.identity, verb, key, name)
}

// allows asks the hub one question. It fails if there is no answer.
func allows(ctx context.Context, authz authorizer.Authorizer, identity user.Info, verb string, key reviewedClass, name string) (bool, error) {
	decision, _, err := authz.Authorize(ctx, authorizer.AttributesRecord{
		User:            identity,
		Verb:            verb,
		APIGroup:        key.group,
		APIVersion:      "*",
		Resource:        key.resource,
		Namespace:       key.namespace,
		Name:            name,
		ResourceRequest: true,
	})
	switch {
	case decision == authorizer.DecisionAllow:
		return true, nil
	case err != nil:
		return false, fmt.Errorf("asking the hub whether %q may %s %s in group %q and namespace %q: %w",
			identity.GetName(), verb, key.resource, key.group, key.namespace, err)
	}
	return false, nil
}

func (k reviewedClass) compare(other reviewedClass) int {
	return cmp.Or(cmp.Compare(k.group, other.group), cmp.Compare(k.resource, other.resource), cmp.Compare(k.namespace, other.namespace))
}
