package visibility

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// Mode says how it is found out what a caller may find.
type Mode string

const (
	// Auto reads RBAC as long as RBAC alone decides on the hub, and asks the hub otherwise.
	Auto Mode = "Auto"
	// RBAC reads the hub's RBAC and asks nobody. It shows too much or too little where
	// another authorizer decides too.
	RBAC Mode = "RBAC"
	// Reviews asks the hub, whatever decides there.
	Reviews Mode = "Reviews"
)

const (
	defaultCacheSize     = 4096
	defaultReviewTTL     = 10 * time.Second
	defaultReviewTimeout = 20 * time.Second
	defaultAuthorizerTTL = 10 * time.Second
)

// ErrNotSynced is the error of a Compiler that does not know the permissions yet,
// or does not follow them any more.
var ErrNotSynced = errors.New("the permissions of the hub are not known yet")

// Config is what a Compiler needs. Informers are started and stopped by others.
type Config struct {
	// Mode is Auto if empty.
	Mode Mode
	// Roles, ClusterRoles, RoleBindings and ClusterRoleBindings are informers of the
	// hub's objects. In mode Reviews they may be nil; single names are then not found.
	Roles, ClusterRoles, RoleBindings, ClusterRoleBindings cache.SharedIndexInformer
	// Authorizer answers for the hub; nil in mode RBAC only. What it caches counts on
	// top of ReviewTTL, so it should not cache.
	Authorizer authorizer.Authorizer
	// RulesReview asks for a rules review of the server's own identity, and returns
	// whether it was incomplete: then some authorizer decides that does not list its
	// rules. Nil in the modes RBAC and Reviews only.
	RulesReview func(ctx context.Context) (incomplete bool, err error)
	// HubClasses are the classes of the hub's resources, and a number that changes
	// whenever they do. Nil in mode RBAC only.
	HubClasses func(ctx context.Context) ([]Class, uint64, error)
	// Clusters are the names of all managed clusters; they are asked for in Reviews.
	// Nil in mode RBAC only.
	Clusters func() []string

	// Works is an informer of ManifestWorks; nil unless what ClusterPermissions let
	// a caller list on managed clusters is to be found, too.
	Works cache.SharedIndexInformer
	// Delivered returns the manifests of a managed cluster's ClusterPermissions that
	// are applied there now, and nothing that somebody else wrote in their place. It is
	// asked when a work changes; nil if Works is.
	Delivered func(ctx context.Context, cluster string) ([]workv1.Manifest, error)

	// CacheSize is for how many identities scopes are kept; 4,096 if 0.
	CacheSize int
	// ReviewTTL is how long answers of the hub are kept; 10 s if 0. Where asking takes
	// longer than a tenth of it, they are kept ten times as long as asking took.
	ReviewTTL time.Duration
	// ReviewTimeout bounds asking the hub for one caller; 20 s if 0.
	ReviewTimeout time.Duration
	// AuthorizerTTL is how long Authorizer may repeat an answer; 10 s if 0. A sampled
	// decision must stay in doubt for longer before it counts.
	AuthorizerTTL time.Duration
	// Clock is the real one if nil.
	Clock clock.Clock
}

// Compiler finds out what callers may find, and keeps that as long as it holds.
// Its methods may be called concurrently.
type Compiler struct {
	config    Config
	clock     clock.Clock
	policy    *policy
	delivered *delivered
	interests *interests
	scopes    *scopes
	classes   *classes
	feeds     []feed

	// rbacDecides is set while RBAC alone decides on the hub, distrusted for good
	// once the hub has decided otherwise than its RBAC.
	rbacDecides, distrusted atomic.Bool
	// asked is set once it was asked whether RBAC alone decides.
	asked atomic.Bool
	// deliveredSynced is set once the works that there were are known.
	deliveredSynced atomic.Bool
	synced, stopped atomic.Bool

	samples chan *entry
	limiter *rate.Limiter

	subscribersMu sync.Mutex
	subscribers   map[*interest]user.Info
}

// New makes a Compiler and has it follow the informers. Whoever made it calls Run.
// An incomplete Config is an error.
func New(config Config) (*Compiler, error) {
	if err := config.complete(); err != nil {
		return nil, fmt.Errorf("visibility: %w", err)
	}
	registerMetrics()
	interests := newInterests()
	c := &Compiler{
		config:      config,
		clock:       config.Clock,
		policy:      newPolicy(),
		interests:   interests,
		scopes:      newScopes(config.CacheSize, interests),
		classes:     &classes{read: config.HubClasses, clock: config.Clock},
		samples:     make(chan *entry, maxSamples),
		limiter:     rate.NewLimiter(samplesPerSecond, sampleBurst),
		subscribers: map[*interest]user.Info{},
	}
	if config.Works != nil {
		c.delivered = newDelivered(c)
	}
	if err := c.follow(); err != nil {
		return nil, fmt.Errorf("visibility: %w", err)
	}
	c.observeMode()
	return c, nil
}

func (c *Config) complete() error {
	if c.Mode == "" {
		c.Mode = Auto
	}
	if c.CacheSize <= 0 {
		c.CacheSize = defaultCacheSize
	}
	if c.ReviewTTL <= 0 {
		c.ReviewTTL = defaultReviewTTL
	}
	if c.ReviewTimeout <= 0 {
		c.ReviewTimeout = defaultReviewTimeout
	}
	if c.AuthorizerTTL <= 0 {
		c.AuthorizerTTL = defaultAuthorizerTTL
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	informers := c.Roles != nil && c.ClusterRoles != nil && c.RoleBindings != nil && c.ClusterRoleBindings != nil
	reviews := c.Authorizer != nil && c.HubClasses != nil && c.Clusters != nil
	switch {
	case c.Mode != Auto && c.Mode != RBAC && c.Mode != Reviews:
		return fmt.Errorf("unknown mode %q: it is one of %s, %s and %s", c.Mode, Auto, RBAC, Reviews)
	case c.Mode != Reviews && !informers:
		return fmt.Errorf("mode %s takes informers of all four kinds of RBAC", c.Mode)
	case c.Mode != RBAC && !reviews:
		return fmt.Errorf("mode %s takes an Authorizer, HubClasses and Clusters", c.Mode)
	case c.Mode == Auto && c.RulesReview == nil:
		return fmt.Errorf("mode %s takes a RulesReview", c.Mode)
	case (c.Works == nil) != (c.Delivered == nil):
		return errors.New("works and what they have delivered are given together or not at all")
	}
	return nil
}

// HasSynced tells whether the permissions are known and Scope answers.
func (c *Compiler) HasSynced() bool {
	if c.stopped.Load() {
		return false
	}
	if c.synced.Load() {
		return true
	}
	if c.config.Mode == Auto && !c.asked.Load() || c.delivered != nil && !c.deliveredSynced.Load() {
		return false
	}
	for i := range c.feeds {
		if !c.feeds[i].registration.HasSynced() {
			return false
		}
	}
	c.synced.Store(true)
	return true
}

// Scope tells what an identity may find now. It fails with ErrNotSynced before the
// permissions are known, and where the hub does not answer; never does it guess.
func (c *Compiler) Scope(ctx context.Context, identity user.Info) (Scope, error) {
	if identity == nil {
		return Scope{}, errors.New("visibility: no identity")
	}
	if !c.HasSynced() {
		return Scope{}, ErrNotSynced
	}
	e := c.scopes.entry(identity)
	found, err := c.fresh(ctx, e)
	if err != nil {
		return Scope{}, err
	}
	if found != nil {
		return Scope{allowed: found.allowed}, nil
	}
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return Scope{}, fmt.Errorf("waiting for what %q may find: %w", identity.GetName(), context.Cause(ctx))
	}
	if found, err = c.fresh(ctx, e); err != nil {
		return Scope{}, err
	}
	if found == nil {
		if found, err = c.find(ctx, e); err != nil {
			return Scope{}, fmt.Errorf("finding out what %q may find: %w", identity.GetName(), err)
		}
	}
	return Scope{allowed: found.allowed}, nil
}

// fresh returns what was found out already, nil if that does not hold any more.
func (c *Compiler) fresh(ctx context.Context, e *entry) (*finding, error) {
	found := e.found.Load()
	if found == nil || e.dropped.Load() || found.changes != e.changes.Load() || (found.answers != nil) != c.asks(e.identity) {
		return nil, nil
	}
	if found.answers == nil {
		return found, nil
	}
	if !c.clock.Now().Before(found.expires) {
		return nil, nil
	}
	_, version, err := c.classes.get(ctx)
	if err != nil {
		return nil, err
	}
	if version != found.answers.version {
		return nil, nil
	}
	return found, nil
}

// find finds out what an identity may find; it is the caller's turn.
func (c *Compiler) find(ctx context.Context, e *entry) (*finding, error) {
	started := c.clock.Now()
	now := &finding{changes: e.changes.Load()}
	by, result := byRBAC, "success"
	var err error
	if c.asks(e.identity) {
		by = byReviews
		err = c.review(ctx, e, now)
	} else {
		now.allowed = c.policy.compileHub(e.identity)
	}
	took := c.clock.Since(started)
	if err != nil {
		result = "error"
	}
	compileDuration.WithLabelValues(by, result).Observe(took.Seconds())
	if err != nil {
		return nil, err
	}
	if c.delivered != nil {
		c.delivered.compile(e.identity, now.allowed)
	}
	now.allowed = c.scopes.numbered(now.allowed)
	e.found.Store(now)
	if now.answers == nil {
		c.sample(e)
	}
	return now, nil
}

// Subscribe tells of changes: a value comes when the identity's scope may have
// changed since the last, and Scope then tells whether it has. stop ends it and must
// be called; nothing comes afterwards.
func (c *Compiler) Subscribe(identity user.Info) (changed <-chan struct{}, stop func()) {
	changes := make(chan struct{}, 1)
	one := &interest{subjects: hubSubjects(identity), touched: func() {
		select {
		case changes <- struct{}{}:
		default: // the one that waits tells it too
		}
	}}
	c.interests.add(one)
	c.subscribersMu.Lock()
	c.subscribers[one] = copied(identity)
	c.subscribersMu.Unlock()
	return changes, func() {
		c.interests.remove(one)
		c.subscribersMu.Lock()
		delete(c.subscribers, one)
		c.subscribersMu.Unlock()
	}
}
