package visibility

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/tools/cache"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// Mode is the source of search permissions.
type Mode string

const (
	// Auto computes permissions from RBAC while RBAC alone decides on the hub, and sends
	// SubjectAccessReviews otherwise.
	Auto Mode = "Auto"
	// RBAC computes permissions from the hub's RBAC. They are wrong if the hub has another authorizer.
	RBAC Mode = "RBAC"
	// Reviews sends SubjectAccessReviews to the hub.
	Reviews Mode = "Reviews"
)

const (
	defaultCacheSize     = 4096
	defaultReviewTTL     = 10 * time.Second
	defaultReviewTimeout = 20 * time.Second
	defaultAuthorizerTTL = 10 * time.Second
)

// ErrNotSynced is the error of a Compiler whose informers have not synced yet, or that has stopped.
var ErrNotSynced = errors.New("the permissions of the hub are not known yet")

// Config configures a Compiler. The caller starts and stops the informers.
type Config struct {
	// Mode defaults to Auto.
	Mode Mode
	// Roles, ClusterRoles, RoleBindings and ClusterRoleBindings are informers of the hub.
	Roles, ClusterRoles, RoleBindings, ClusterRoleBindings cache.SharedIndexInformer
	// Authorizer decides for the hub. Its cache adds to ReviewTTL, so it should not have one.
	Authorizer authorizer.Authorizer
	// ReviewAuthorizers reviews whether the hub asks another authorizer than RBAC. It is nil only in other modes than Auto.
	ReviewAuthorizers func(context.Context) (others bool, err error)
	// HubClasses returns the classes of the hub's resources and their version, which changes when they do.
	HubClasses func(ctx context.Context) ([]Class, uint64, error)
	// Clusters returns the names of all managed clusters.
	Clusters func() []string

	// Works is an informer of ManifestWorks. It is nil unless callers also find the
	// resources that ClusterPermissions allow them to list.
	Works cache.SharedIndexInformer
	// Delivered returns the manifests of a managed cluster's ClusterPermissions that are applied there now, excluding
	// objects that others wrote in their place. It is called when a ManifestWork changes, and nil if Works is nil.
	Delivered func(ctx context.Context, cluster string) ([]workv1.Manifest, error)

	// Fleet is the RBAC of the fleet. The Compiler fills the entry of the hub, HubCluster. On managed clusters whose RBAC is
	// known, it decides instead of what is delivered.
	Fleet      *access.Index
	HubCluster string

	// CacheSize is the number of cached Scopes; it defaults to 4,096.
	CacheSize int
	// ReviewTTL is the lifetime of cached responses of the hub. The actual lifetime is at
	// least ten times the duration of the reviews. It defaults to 10 s.
	ReviewTTL time.Duration
	// ReviewTimeout bounds the reviews for one caller. It defaults to 20 s.
	ReviewTimeout time.Duration
	// AuthorizerTTL is how long Authorizer may cache a decision. A sampled difference
	// takes effect only if it lasts longer. It defaults to 10 s.
	AuthorizerTTL time.Duration
}

// Compiler computes and caches the Scopes of callers. It may be used concurrently.
type Compiler struct {
	config Config
	// hub contains the part of the hub's RBAC that affects visibility.
	hub       *access.Index
	delivered *delivered
	interests *interests
	scopes    *scopes
	classes   *classes
	feeds     []cache.ResourceEventHandlerRegistration

	// rbacDecides is set while RBAC alone decides on the hub. distrusted is set
	// permanently once a decision of the hub differed from its RBAC.
	rbacDecides, distrusted atomic.Bool
	// asked is set after the first check whether RBAC alone decides. authorizers is the last result.
	asked       atomic.Bool
	authorizers atomic.Pointer[authorizers]
	// deliveredSynced is set once the delivered RBAC of all clusters has been read.
	deliveredSynced atomic.Bool
	synced, stopped atomic.Bool

	samples chan *entry
	limiter *rate.Limiter
}

// New returns a Compiler that follows the informers. The caller must call Run.
func New(config Config) (*Compiler, error) {
	registerMetrics()
	config.Mode, config.Fleet = cmp.Or(config.Mode, Auto), cmp.Or(config.Fleet, access.New())
	config.CacheSize = cmp.Or(config.CacheSize, defaultCacheSize)
	config.ReviewTTL, config.AuthorizerTTL = cmp.Or(config.ReviewTTL, defaultReviewTTL), cmp.Or(config.AuthorizerTTL, defaultAuthorizerTTL)
	config.ReviewTimeout = cmp.Or(config.ReviewTimeout, defaultReviewTimeout)
	interests := &interests{}
	c := &Compiler{
		config:    config,
		hub:       access.New(),
		interests: interests,
		scopes:    newScopes(config.CacheSize, interests),
		classes:   &classes{read: config.HubClasses},
		samples:   make(chan *entry, maxSamples),
		limiter:   rate.NewLimiter(samplesPerSecond, sampleBurst),
	}
	c.authorizers.Store(&authorizers{})
	c.hub.Follow(func(_ string, _ bool, concerned []rbac.Subject) { interests.touchHub(concerned) })
	if config.Works != nil {
		c.delivered = newDelivered(c)
		config.Fleet.Follow(c.delivered.reportedChanged)
	}
	if err := c.follow(); err != nil {
		return nil, fmt.Errorf("visibility: %w", err)
	}
	c.observeMode()
	return c, nil
}

// HasSynced reports whether the permissions are known, so that Scope succeeds.
func (c *Compiler) HasSynced() bool {
	if c.stopped.Load() {
		return false
	}
	if c.synced.Load() {
		return true
	}
	if c.config.Mode == Auto && !c.asked.Load() || c.delivered != nil && !c.deliveredSynced.Load() || !c.hubSynced() {
		return false
	}
	// Earlier changes concern no Scope.
	c.hub.SetState(onHub, access.State{Known: true})
	c.synced.Store(true)
	return true
}

// Scope returns the current permissions of an identity. It returns ErrNotSynced before
// the permissions are known, and an error if the hub does not respond.
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
		return Scope{}, fmt.Errorf("waiting for the search permissions of user %q: %w", identity.GetName(), context.Cause(ctx))
	}
	if found, err = c.fresh(ctx, e); err != nil {
		return Scope{}, err
	}
	if found == nil {
		if found, err = c.find(ctx, e); err != nil {
			return Scope{}, fmt.Errorf("computing the search permissions of user %q: %w", identity.GetName(), err)
		}
	}
	return Scope{allowed: found.allowed}, nil
}

// fresh returns the cached finding, or nil if it is no longer valid.
func (c *Compiler) fresh(ctx context.Context, e *entry) (*finding, error) {
	found := e.found.Load()
	if found == nil || e.dropped.Load() || found.changes != e.changes.Load() || (found.answers != nil) != c.asks(e.identity) {
		return nil, nil
	}
	if found.answers == nil {
		return found, nil
	}
	if !time.Now().Before(found.expires) {
		return nil, nil
	}
	_, version, err := c.classes.get(ctx)
	if err != nil || version != found.answers.version {
		return nil, err
	}
	return found, nil
}

// find computes the permissions of an identity. The caller holds its turn.
func (c *Compiler) find(ctx context.Context, e *entry) (*finding, error) {
	started := time.Now()
	now := &finding{changes: e.changes.Load(), hubChanges: e.hubChanges.Load()}
	by, result := byRBAC, "success"
	var err error
	if c.asks(e.identity) {
		by = byReviews
		err = c.review(ctx, e, now)
	} else {
		now.allowed = compileHub(c.hub, e.identity)
	}
	took := time.Since(started)
	if err != nil {
		result = "error"
	}
	compileDuration.WithLabelValues(by, result).Observe(took.Seconds())
	if err != nil {
		return nil, err
	}
	if c.delivered != nil {
		now.allowed.addClusters(c.delivered.compile(e.identity))
	}
	now.allowed = c.scopes.numbered(now.allowed)
	e.found.Store(now)
	if now.answers == nil {
		c.sample(e)
	}
	return now, nil
}

// Subscribe returns a channel that receives a value when the identity's Scope may have changed; Scope returns the new
// one. The caller must call stop, which ends the subscription.
func (c *Compiler) Subscribe(identity user.Info) (changed <-chan struct{}, stop func()) {
	interest, changed := c.interests.subscribers.Subscribe(hubSubjects(identity))
	return changed, func() { c.interests.subscribers.Remove(interest) }
}
