package visibility

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/authz"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// parallelReviews is the maximum number of parallel access checks for one caller.
const parallelReviews = 16

// answers are the decisions of the hub about an identity. A decision for all namespaces
// applies to each namespace; nothing else is inferred.
type answers struct {
	// version is the version of the classes.
	version uint64
	// classes has a Decision for each class that was checked. Those without a namespace
	// are cluster-wide.
	classes map[reviewedClass]Decision
	// cluster has the Decisions about getting the resources of gettable, by resource.
	cluster map[string]Decision
	// anyView and views are the decisions on creating managedclusterviews, everywhere
	// and by cluster.
	anyView bool
	views   map[string]bool
}

// gettable are the cluster-scoped resources of the group of ManagedClusters that Scope.Gets decides about.
var gettable = []string{"managedclusters", "managedclustersets"}

type reviewedClass struct{ group, resource, namespace string }

func (a *answers) whole() bool { return false }

func (a *answers) decide(group, resource, namespace string) Decision {
	wide := a.classes[reviewedClass{group, resource, ""}]
	if wide.All || namespace == "" {
		return wide
	}
	return a.classes[reviewedClass{group, resource, namespace}]
}

func (a *answers) gets(resource string) Decision { return a.cluster[resource] }

// review sends access reviews to the hub to determine the resources that an identity may
// find. It reuses answers that are still valid.
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
		named:      compileHub(c.hub, e.identity).hub,
		answers:    &answers{version: version, classes: map[reviewedClass]Decision{}, cluster: map[string]Decision{}, views: map[string]bool{}},
	}
	before := e.found.Load()
	if before != nil && before.answers != nil && before.hubChanges == now.hubChanges && started.Before(before.expires) {
		r.before = before.answers
		now.expires = before.expires
	}
	if err := r.run(ctx, known, c.config.Clusters()); err != nil {
		return err
	}
	if r.before == nil {
		// The minimum lifetime prevents callers from keeping the server busy with reviews.
		ttl := c.config.ReviewTTL
		if before != nil && before.hubChanges != now.hubChanges {
			// The hub's own informers may receive a change later than this server.
			ttl = min(ttl, sampleLag)
		}
		now.expires = c.clock.Now().Add(max(ttl, 10*c.clock.Since(started)))
	}
	now.answers, now.allowed = r.answers, r.answers.allowed()
	return nil
}

// allowed returns the permissions that the answers contain.
func (a *answers) allowed() *allowed {
	result := &allowed{hub: a, anyView: a.anyView, views: map[string]struct{}{}}
	var content rbac.Content
	content.Add(byReviews, strconv.FormatBool(a.anyView))
	for _, cluster := range slices.Sorted(maps.Keys(a.views)) {
		if a.views[cluster] {
			result.views[cluster] = struct{}{}
			content.Add(cluster)
		}
	}
	keys := slices.SortedFunc(maps.Keys(a.classes), reviewedClass.compare)
	for _, key := range keys {
		if d := a.classes[key]; d.All || len(d.Names) > 0 {
			content.Add(key.group, key.resource, key.namespace, strconv.FormatBool(d.All))
			content.Add(d.Names...)
		}
	}
	for _, resource := range gettable {
		content.Add(strconv.FormatBool(a.cluster[resource].All))
		content.Add(a.cluster[resource].Names...)
	}
	result.fingerprint = content.Fingerprint()
	return result
}

// review is one round of access checks.
type review struct {
	authorizer authorizer.Authorizer
	identity   user.Info
	// named contains the permissions from RBAC, which supply the names to check. Single
	// names that only another authorizer allows are not found.
	named decider
	// before contains the answers that are still valid, or nil.
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
	if err := r.each(ctx, maps.Keys(wide), r.checkClass); err != nil {
		return err
	}
	maps.DeleteFunc(spaced, func(key reviewedClass, _ struct{}) bool {
		return r.answers.classes[reviewedClass{key.group, key.resource, ""}].All
	})
	if err := r.each(ctx, maps.Keys(spaced), r.checkClass); err != nil {
		return err
	}
	for _, resource := range gettable {
		if err := r.checkGets(ctx, resource); err != nil {
			return err
		}
	}
	return r.checkClusters(ctx, clusters)
}

func (r *review) checkGets(ctx context.Context, resource string) error {
	if r.before != nil {
		r.answers.cluster[resource] = r.before.cluster[resource]
		return nil
	}
	decision, err := r.decide(ctx, verbGet, reviewedClass{group: clusterv1.GroupName, resource: resource}, r.named.gets(resource).Names)
	r.answers.cluster[resource] = decision
	return err
}

// each checks classes in parallel, and stops at the first error.
func (r *review) each(ctx context.Context, keys func(func(reviewedClass) bool), check func(context.Context, reviewedClass) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelReviews)
	for key := range keys {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error { return check(ctx, key) })
	}
	return group.Wait()
}

func (r *review) checkClass(ctx context.Context, key reviewedClass) error {
	if r.before != nil {
		if decision, found := r.before.classes[key]; found {
			r.set(key, decision)
			return nil
		}
	}
	decision, err := r.decide(ctx, verbList, key, r.named.decide(key.group, key.resource, key.namespace).Names)
	if err != nil {
		return err
	}
	r.set(key, decision)
	return nil
}

// decide checks an access to all objects, and otherwise to each of the names.
func (r *review) decide(ctx context.Context, verb string, key reviewedClass, names []string) (Decision, error) {
	all, err := r.allows(ctx, verb, key, "")
	if err != nil || all {
		return Decision{All: all}, err
	}
	var decision Decision
	for _, name := range names {
		one, err := r.allows(ctx, verb, key, name)
		if err != nil {
			return Decision{}, err
		}
		if one {
			decision.Names = append(decision.Names, name)
		}
	}
	return decision, nil
}

func (r *review) set(key reviewedClass, decision Decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers.classes[key] = decision
}

func (r *review) checkClusters(ctx context.Context, clusters []string) error {
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
	check := func(ctx context.Context, key reviewedClass) error {
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
			// An empty namespace would stand for all namespaces.
			if cluster != "" && !yield(key) {
				return
			}
		}
	}, check)
}

func (r *review) allows(ctx context.Context, verb string, key reviewedClass, name string) (bool, error) {
	return allows(ctx, r.authorizer, r.identity, verb, key, name)
}

// allows checks one access with the hub.
func allows(ctx context.Context, a authorizer.Authorizer, identity user.Info, verb string, key reviewedClass, name string) (bool, error) {
	return authz.Allowed(ctx, a, identity, authorizationv1.ResourceAttributes{
		Verb: verb, Group: key.group, Version: "*", Resource: key.resource, Namespace: key.namespace, Name: name,
	})
}

func (k reviewedClass) compare(other reviewedClass) int {
	return cmp.Or(cmp.Compare(k.group, other.group), cmp.Compare(k.resource, other.resource), cmp.Compare(k.namespace, other.namespace))
}
