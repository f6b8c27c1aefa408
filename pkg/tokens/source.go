package tokens

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	authenticationclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/authentication/v1beta1"
	clusterclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/cluster/v1"
)

const (
	// readTimeout bounds how long a refused request waits for the hub.
	readTimeout = 10 * time.Second
	// readPeriod and readBurst bound what the hub is asked because of refused
	// requests: an account that is gone for good has every request refused.
	readPeriod = time.Second
	readBurst  = 3
)

// Hub reads accounts, their tokens, and the addresses of clusters. It is safe
// for concurrent use; one serves any number of sources.
type Hub struct {
	// address is for messages.
	address  string
	core     corev1client.CoreV1Interface
	clusters clusterclient.ClusterV1Interface
	accounts authenticationclient.AuthenticationV1beta1Interface
}

// NewHub returns what reads the hub that config leads to.
func NewHub(config *rest.Config) (*Hub, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("building the hub's client: %w", err)
	}
	hub := &Hub{}
	var errs [3]error
	hub.core, errs[0] = corev1client.NewForConfigAndClient(config, client)
	hub.clusters, errs[1] = clusterclient.NewForConfigAndClient(config, client)
	hub.accounts, errs[2] = authenticationclient.NewForConfigAndClient(config, client)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("building the hub's client: %w", err)
	}
	base := hub.core.RESTClient().Get().URL()
	hub.address = base.Scheme + "://" + base.Host
	return hub, nil
}

// Options say where an account is used.
type Options struct {
	// Host is the address of the managed cluster's API server, if it is not the
	// first of spec.managedClusterClientConfigs of the ManagedCluster. It must
	// be an https address.
	Host string
	// CAData are PEM certificates to verify the API server with, in addition to
	// those of the Secret and of the ManagedCluster. Without any, the system's verify it.
	CAData []byte
}

// Source is one account on one managed cluster, followed while Run runs.
type Source struct {
	hub           *Hub
	cluster, name string
	options       Options

	// current is what requests use; nil before there is a token.
	current atomic.Pointer[credentials]
	// reading is held by the one who reads the hub for refused requests.
	reading chan struct{}
	limiter *rate.Limiter

	mu sync.Mutex
	// changed is closed, and replaced, whenever something below changes.
	changed chan struct{}
	running bool
	secret  secretState
	address addressState
}

// secretState is what the Secret says. A problem leaves the rest as it was: the
// token may well be good while its Secret is replaced.
type secretState struct {
	token   string
	ca      []byte
	problem error
}

// addressState is what the ManagedCluster says.
type addressState struct {
	host    string
	ca      []byte
	problem error
}

// Source returns a source of an account on a managed cluster, which is also the
// account's namespace. It does nothing before Run.
func (h *Hub) Source(cluster, account string, options Options) (*Source, error) {
	if cluster == "" || account == "" {
		return nil, errors.New("the names of the cluster and of the account are needed")
	}
	s := &Source{
		hub: h, cluster: cluster, name: account, options: options,
		reading: make(chan struct{}, 1),
		limiter: rate.NewLimiter(rate.Every(readPeriod), readBurst),
		changed: make(chan struct{}),
	}
	s.secret.problem = fmt.Errorf("the Secret %s in namespace %s has not been read yet from the hub %s", account, cluster, h.address)
	if options.Host != "" {
		host, err := secureHost(options.Host)
		if err != nil {
			return nil, err
		}
		s.address.host = host
	} else {
		s.address.problem = fmt.Errorf("ManagedCluster %s has not been read yet from the hub %s", cluster, h.address)
	}
	if len(options.CAData) > 0 {
		if _, err := newGeneration(options.CAData); err != nil {
			return nil, fmt.Errorf("the given certificates: %w", err)
		}
	}
	return s, nil
}

// Config returns a configuration for clients of the managed cluster, once there
// is a token. It waits until then, or until ctx ends; the error says what is
// missing. Run must be running, or about to: the error also tells where it was not
// while ctx had not ended.
//
// Clients made from the configuration and from copies of it follow the token and
// the CA bundle for as long as Run runs. The address is that of this call, and so
// is the CA bundle of connections that are no plain HTTP, such as those of exec and
// port-forward: call Config again for these rather than keep one for long, it costs
// nothing. A Transport of the caller's own does not follow the CA bundle either.
// [rest.AnonymousClientConfig] of it has no token.
//
// Errors of connections name the address, as everywhere in client-go; what an API
// server answers, such as that it forbids something, does not name the cluster.
func (s *Source) Config(ctx context.Context) (*rest.Config, error) {
	idle := false
	for {
		config, now := s.config()
		if now.missing == nil {
			return config, nil
		}
		if ctx.Err() != nil {
			if idle {
				now.missing = fmt.Errorf("Run is not running: %w", now.missing)
			}
			return nil, fmt.Errorf("waiting for the token of account %s on cluster %s: %w: %w", s.name, s.cluster, context.Cause(ctx), now.missing)
		}
		// Only while ctx is alive: Run may well end with the same context, and is not
		// to blame then.
		idle = !now.running
		select {
		case <-now.changed:
		case <-ctx.Done():
		}
	}
}

// observed is what Config has to go by.
type observed struct {
	// missing says in one line why there is no configuration; nil if there is one.
	missing error
	running bool
	changed <-chan struct{}
}

func (s *Source) config() (*rest.Config, observed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := observed{running: s.running, changed: s.changed}
	switch secret, address := s.secret.problem, s.address.problem; {
	case secret != nil && address != nil:
		now.missing = fmt.Errorf("%w; %w", secret, address)
	case secret != nil || address != nil:
		now.missing = cmp.Or(secret, address)
	default:
		return &rest.Config{
			Host:            s.address.host,
			TLSClientConfig: rest.TLSClientConfig{CAData: bytes.Clone(s.current.Load().generation.pem)},
			WrapTransport:   s.wrap,
		}, now
	}
	return nil, now
}

// observeSecret takes over what the Secret says; nil if there is none.
func (s *Source) observeSecret(secret *corev1.Secret) {
	s.mu.Lock()
	defer s.mu.Unlock()
	token, ca, err := read(secret)
	switch {
	case secret == nil:
		s.secret.problem = fmt.Errorf("there is no Secret %s in namespace %s", s.name, s.cluster)
	case err != nil:
		s.secret.problem = fmt.Errorf("the Secret %s in namespace %s: %w", s.name, s.cluster, err)
	default:
		s.secret = secretState{token: token, ca: ca}
	}
	s.update()
}

// read takes the token and the CA bundle out of a Secret.
func read(secret *corev1.Secret) (token string, ca []byte, err error) {
	if secret == nil {
		return "", nil, nil
	}
	token = strings.TrimSpace(string(secret.Data[authenticationv1beta1.SecretTokenKey]))
	ca = secret.Data[authenticationv1beta1.SecretCAKey]
	switch {
	case secret.Labels[authenticationv1beta1.ManagedServiceAccountLabel] != "true":
		// Somebody else's Secret of that name, with a token for who knows what.
		return "", nil, fmt.Errorf("it does not have the label %s=true", authenticationv1beta1.ManagedServiceAccountLabel)
	case token == "":
		return "", nil, fmt.Errorf("it has no %s", authenticationv1beta1.SecretTokenKey)
	case len(ca) > 0:
		if _, err := newGeneration(ca); err != nil {
			return "", nil, fmt.Errorf("%s: %w", authenticationv1beta1.SecretCAKey, err)
		}
	}
	return token, ca, nil
}

// observeCluster takes over what the ManagedCluster says; nil if there is none.
func (s *Source) observeCluster(cluster *clusterv1.ManagedCluster) {
	s.mu.Lock()
	defer s.mu.Unlock()
	host, ca, err := locate(cluster)
	switch {
	case cluster == nil:
		s.address.problem = fmt.Errorf("there is no ManagedCluster %s", s.cluster)
	case err != nil:
		s.address.problem = fmt.Errorf("ManagedCluster %s: %w", s.cluster, err)
	default:
		s.address = addressState{host: host, ca: ca}
	}
	s.update()
}

// locate takes the address of the API server out of a ManagedCluster.
func locate(cluster *clusterv1.ManagedCluster) (host string, ca []byte, err error) {
	if cluster == nil {
		return "", nil, nil
	}
	configs := cluster.Spec.ManagedClusterClientConfigs
	if len(configs) == 0 || configs[0].URL == "" {
		return "", nil, errors.New("spec.managedClusterClientConfigs does not say where its API server is")
	}
	if host, err = secureHost(configs[0].URL); err != nil {
		return "", nil, err
	}
	if ca = configs[0].CABundle; len(ca) > 0 {
		if _, err := newGeneration(ca); err != nil {
			return "", nil, fmt.Errorf("spec.managedClusterClientConfigs[0].caBundle: %w", err)
		}
	}
	return host, ca, nil
}

// secureHost completes an address, and refuses one that would send a token
// unencrypted.
func secureHost(address string) (string, error) {
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	parsed, err := url.Parse(address)
	if err != nil {
		return "", fmt.Errorf("address of the API server: %w", err)
	}
	if parsed.Scheme != "https" || parsed.Host == "" {
		return "", fmt.Errorf("address of the API server: %q is no https address", address)
	}
	return address, nil
}

// failed notes why the hub could not be read, for those who wait for what it would say.
func (s *Source) failed(problem *error, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *problem != nil {
		*problem = fmt.Errorf("asking the hub %s: %w", s.hub.address, err)
	}
}

// tell wakes those who wait for a change. The caller holds mu.
func (s *Source) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// update makes what was observed current. The caller holds mu.
func (s *Source) update() {
	defer s.tell()
	if s.secret.token == "" {
		return
	}
	old := s.current.Load()
	bundle := joinPEM(s.secret.ca, s.address.ca, s.options.CAData)
	next := &credentials{token: s.secret.token}
	switch {
	case old != nil && bytes.Equal(old.generation.pem, bundle):
		if old.token == next.token {
			return
		}
		next.generation = old.generation
	default:
		generation, err := newGeneration(bundle)
		if err != nil { // each part has been parsed before
			s.secret.problem = err
			return
		}
		next.generation = generation
	}
	s.current.Store(next)
	if old != nil && old.generation != next.generation {
		old.generation.close()
	}
}

// renew returns what is current after the cluster has refused a request that
// used something: what came meanwhile, or else what the hub says now. It returns
// what was used if there is nothing newer.
func (s *Source) renew(ctx context.Context, refused *credentials) *credentials {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	select {
	case s.reading <- struct{}{}:
		defer func() { <-s.reading }()
	case <-ctx.Done():
		return s.current.Load()
	}
	// Of many requests that are refused at once, the first reads for all.
	if now := s.current.Load(); now != refused || !s.limiter.Allow() {
		return now
	}
	secret, err := s.hub.core.Secrets(s.cluster).Get(ctx, s.name, metav1.GetOptions{})
	switch {
	case err == nil:
		s.observeSecret(secret)
	case apierrors.IsNotFound(err):
		s.observeSecret(nil)
	}
	if s.options.Host == "" {
		// Its certificates may have changed; that it is gone changes nothing here.
		if cluster, err := s.hub.clusters.ManagedClusters().Get(ctx, s.cluster, metav1.GetOptions{}); err == nil {
			s.observeCluster(cluster)
		}
	}
	return s.current.Load()
}
