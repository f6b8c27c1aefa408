package visibility

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/authz"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// parallelReviews is the maximum number of parallel access checks for one caller.
const parallelReviews = 16

// question is an access to the objects of a resource: in a namespace, or everywhere if it is empty.
type question struct{ verb, group, resource, namespace string }

func (q question) compare(other question) int {
	return cmp.Or(cmp.Compare(q.verb, other.verb), cmp.Compare(q.group, other.group), cmp.Compare(q.resource, other.resource), cmp.Compare(q.namespace, other.namespace))
}

func (q question) everywhere() question {
	q.namespace = ""
	return q
}

// listing returns the question whether a caller finds the resources of a class.
func listing(group, resource, namespace string) question {
	return question{verbList, group, resource, namespace}
}

// viewing returns the question whether a caller finds the resources of a managed cluster.
func viewing(cluster string) question { return question{verbCreate, viewGroup, viewResource, cluster} }

// getting returns the question which objects of a resource of the group of ManagedClusters a caller may get.
func getting(resource string) question {
	return question{verb: verbGet, group: clusterv1.GroupName, resource: resource}
}

// gettable are the cluster-scoped resources of the group of ManagedClusters that Scope.Gets decides about.
var gettable = []string{"managedclusters", "managedclustersets"}

// answers are the decisions of the hub about an identity. A decision for all namespaces
// applies to each namespace; nothing else is inferred.
type answers struct {
	// version is the version of the classes.
	version   uint64
	decisions map[question]Decision
}

func (a *answers) whole() bool { return false }

func (a *answers) decide(group, resource, namespace string) Decision {
	q := listing(group, resource, namespace)
	if wide := a.decisions[q.everywhere()]; wide.All || namespace == "" {
		return wide
	}
	return a.decisions[q]
}

func (a *answers) gets(resource string) Decision { return a.decisions[getting(resource)] }

// review sends access reviews to the hub to determine the resources that an identity may
// find. It reuses answers that are still valid.
func (c *Compiler) review(ctx context.Context, e *entry, now *finding) error {
	ctx, cancel := context.WithTimeout(ctx, c.config.ReviewTimeout)
	defer cancel()
	started := time.Now()
	known, version, err := c.classes.get(ctx)
	if err != nil {
		return err
	}
	r := &review{
		authorizer: c.config.Authorizer,
		identity:   e.identity,
		named:      compileHub(c.hub, e.identity).hub,
		answers:    &answers{version: version, decisions: map[question]Decision{}},
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
		now.expires = time.Now().Add(max(ttl, 10*time.Since(started)))
	}
	now.answers, now.allowed = r.answers, r.answers.allowed()
	return nil
}

// allowed returns the permissions that the answers contain.
func (a *answers) allowed() *allowed {
	result := &allowed{hub: a, anyView: a.decisions[viewing("")].All, views: map[string]struct{}{}}
	var content rbac.Content
	content.Add(byReviews, "")
	for _, q := range slices.SortedFunc(maps.Keys(a.decisions), question.compare) {
		d := a.decisions[q]
		if !d.All && len(d.Names) == 0 {
			continue
		}
		if q.verb == verbCreate {
			result.views[q.namespace] = struct{}{}
		}
		content.Add(q.verb, q.group, q.resource, q.namespace, strconv.FormatBool(d.All))
		content.Add(d.Names...)
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
	wide, spaced := sets.New(viewing("")), sets.New[question]()
	for _, resource := range gettable {
		wide.Insert(getting(resource))
	}
	for _, cluster := range clusters {
		// An empty namespace would stand for all namespaces.
		if cluster != "" {
			spaced.Insert(viewing(cluster))
		}
	}
	for i := range known {
		q := listing(known[i].Group, known[i].Resource, known[i].Namespace)
		wide.Insert(q.everywhere())
		if q.namespace != "" {
			spaced.Insert(q)
		}
	}
	if err := r.check(ctx, wide); err != nil {
		return err
	}
	maps.DeleteFunc(spaced, func(q question, _ sets.Empty) bool { return r.answers.decisions[q.everywhere()].All })
	return r.check(ctx, spaced)
}

// check answers questions in parallel, and stops at the first error.
func (r *review) check(ctx context.Context, questions sets.Set[question]) error {
	group, checking := errgroup.WithContext(ctx)
	group.SetLimit(parallelReviews)
	for q := range questions {
		if checking.Err() != nil {
			break
		}
		group.Go(func() error {
			decision, err := r.decide(checking, q)
			r.mu.Lock()
			defer r.mu.Unlock()
			r.answers.decisions[q] = decision
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// decide checks an access to all objects, and otherwise to each of the names.
func (r *review) decide(ctx context.Context, q question) (Decision, error) {
	if r.before != nil {
		if decision, found := r.before.decisions[q]; found {
			return decision, nil
		}
	}
	all, err := allows(ctx, r.authorizer, r.identity, q, "")
	if err != nil || all {
		return Decision{All: all}, err
	}
	var names []string
	switch q.verb {
	case verbList:
		names = r.named.decide(q.group, q.resource, q.namespace).Names
	case verbGet:
		names = r.named.gets(q.resource).Names
	}
	var decision Decision
	for _, name := range names {
		allowed, err := allows(ctx, r.authorizer, r.identity, q, name)
		if err != nil {
			return Decision{}, err
		}
		if allowed {
			decision.Names = append(decision.Names, name)
		}
	}
	return decision, nil
}

func allows(ctx context.Context, a authorizer.Authorizer, identity user.Info, q question, name string) (bool, error) {
	return authz.Allowed(ctx, a, identity, authorizationv1.ResourceAttributes{
		Verb: q.verb, Group: q.group, Version: "*", Resource: q.resource, Namespace: q.namespace, Name: name,
	})
}

// classesTTL is how long the classes of the hub are cached.
const classesTTL = time.Second

// classes caches the classes of the hub's resources.
type classes struct {
	read func(ctx context.Context) ([]Class, uint64, error)

	mu      sync.Mutex
	known   []Class
	version uint64
	at      time.Time
}

// get returns the classes and their version. Callers must not modify the classes.
func (c *classes) get(ctx context.Context) ([]Class, uint64, error) {
	c.mu.Lock()
	known, version, at := c.known, c.version, c.at
	c.mu.Unlock()
	now := time.Now()
	if !at.IsZero() && now.Sub(at) < classesTTL {
		return known, version, nil
	}
	known, version, err := c.read(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("reading the resources of the hub: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !now.Before(c.at) {
		c.known, c.version, c.at = known, version, now
	}
	return known, version, nil
}
