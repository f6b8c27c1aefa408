package clusterclient

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
	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/cluster/v1"
)

const (
	// readTimeout bounds how long a refused request waits for the hub.
	readTimeout = 10 * time.Second
	// readPeriod and readBurst limit reads from the hub after refused requests, since the cluster refuses all requests of a
	// deleted account.
	readPeriod = time.Second
	readBurst  = 3
	// configPeriod is the time after which Config looks again for a token.
	configPeriod = 50 * time.Millisecond
)

// Hub reads the tokens of accounts, and the addresses of clusters. It is safe for concurrent use by many sources.
type Hub struct {
	// address is the address of the hub in messages.
	address  string
	core     corev1client.CoreV1Interface
	clusters clusterclient.ClusterV1Interface
}

// NewHub returns a Hub for a client configuration of the hub.
func NewHub(config *rest.Config) (*Hub, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("building the hub's client: %w", err)
	}
	hub := &Hub{}
	var errs [2]error
	hub.core, errs[0] = corev1client.NewForConfigAndClient(config, client)
	hub.clusters, errs[1] = clusterclient.NewForConfigAndClient(config, client)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("building the hub's client: %w", err)
	}
	base := hub.core.RESTClient().Get().URL()
	hub.address = base.Scheme + "://" + base.Host
	return hub, nil
}

// Options configure a Source.
type Options struct {
	// Host is the https address of the managed cluster's API server. It defaults to the first address in
	// spec.managedClusterClientConfigs of the ManagedCluster.
	Host string
}

// Source provides the credentials of one account on one managed cluster while Run runs. The certificates of the Secret and
// of the ManagedCluster verify the API server. If there are none, the certificates of the system do.
type Source struct {
	hub           *Hub
	cluster, name string
	options       Options

	// current contains the credentials of requests. It is nil before there is a token.
	current atomic.Pointer[credentials]
	// reading is held while a refused request reads the hub.
	reading chan struct{}
	limiter *rate.Limiter

	running atomic.Bool

	mu sync.Mutex
	// secret contains the token of the account, and address that of the API server.
	secret, address state
}

// state is what the source knows from one object of the hub. A problem keeps the other fields, since the token may be valid
// while its Secret is replaced.
type state struct {
	value   string
	ca      []byte
	problem error
}

// Source returns a Source of an account on a managed cluster, whose name is also the namespace of the account. It does
// nothing before Run.
func (h *Hub) Source(cluster, account string, options Options) (*Source, error) {
	if cluster == "" || account == "" {
		return nil, errors.New("the names of the cluster and of the account are required")
	}
	s := &Source{
		hub: h, cluster: cluster, name: account, options: options,
		reading: make(chan struct{}, 1),
		limiter: rate.NewLimiter(rate.Every(readPeriod), readBurst),
	}
	s.secret.problem = fmt.Errorf("the Secret %s in namespace %s has not been read yet from the hub %s", account, cluster, h.address)
	if options.Host != "" {
		host, err := secureHost(options.Host)
		if err != nil {
			return nil, err
		}
		s.address.value = host
	} else {
		s.address.problem = fmt.Errorf("ManagedCluster %s has not been read yet from the hub %s", cluster, h.address)
	}
	return s, nil
}

// Config returns a configuration for clients of the managed cluster. It waits until there is a token, or until ctx
// ends. If ctx ends first, the error contains the missing part. Run must be running, or start soon. Otherwise the error
// reports that it is not running.
//
// Clients of the configuration, and of copies of it, use the current token and CA bundle while Run runs. The address
// does not change after this call. Upgraded connections, for example for exec and port-forward, and a Transport of the
// caller do not follow the CA bundle either. Call Config again for these. [rest.AnonymousClientConfig] returns a
// configuration without the token.
//
// Errors of connections name the address, as in client-go. Errors that the API server returns do not name the cluster.
func (s *Source) Config(ctx context.Context) (*rest.Config, error) {
	var config *rest.Config
	var missing error
	idle := false
	if err := wait.PollUntilContextCancel(ctx, configPeriod, true, func(ctx context.Context) (bool, error) {
		config, missing = s.config()
		// Run may end with the same context, so its state matters only while ctx has not ended.
		if running := s.running.Load(); ctx.Err() == nil {
			idle = !running
		}
		return missing == nil, nil
	}); err == nil {
		return config, nil
	}
	if idle {
		missing = fmt.Errorf("Run is not running: %w", missing)
	}
	return nil, fmt.Errorf("waiting for the token of account %s on cluster %s: %w: %w", s.name, s.cluster, context.Cause(ctx), missing)
}

// config returns the configuration, or the reason, on a single line, why there is none yet.
func (s *Source) config() (config *rest.Config, missing error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch secret, address := s.secret.problem, s.address.problem; {
	case secret != nil && address != nil:
		missing = fmt.Errorf("%w; %w", secret, address)
	case secret != nil || address != nil:
		missing = cmp.Or(secret, address)
	default:
		config = &rest.Config{
			Host:            s.address.value,
			TLSClientConfig: rest.TLSClientConfig{CAData: bytes.Clone(s.current.Load().generation.pem)},
			WrapTransport:   s.wrap,
		}
	}
	return config, missing
}

// observe replaces a state, or records the problem with its object.
func (s *Source) observe(known *state, value string, ca []byte, problem error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known.problem = problem; problem == nil {
		known.value, known.ca = value, ca
	}
	s.update()
}

// observeSecret stores the state of the Secret, which is nil if there is none.
func (s *Source) observeSecret(secret *corev1.Secret) {
	if secret == nil {
		s.observe(&s.secret, "", nil, fmt.Errorf("there is no Secret %s in namespace %s", s.name, s.cluster))
		return
	}
	token, ca, err := read(secret)
	if err != nil {
		err = fmt.Errorf("the Secret %s in namespace %s: %w", s.name, s.cluster, err)
	}
	s.observe(&s.secret, token, ca, err)
}

// read returns the token and the CA bundle of a Secret.
func read(secret *corev1.Secret) (token string, ca []byte, err error) {
	token = strings.TrimSpace(string(secret.Data[authenticationv1beta1.SecretTokenKey]))
	ca = secret.Data[authenticationv1beta1.SecretCAKey]
	switch {
	case secret.Labels[authenticationv1beta1.ManagedServiceAccountLabel] != "true":
		// A Secret without the label belongs to another user, and its token is unknown.
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

// observeCluster stores the state of the ManagedCluster, which is nil if there is none.
func (s *Source) observeCluster(cluster *clusterv1.ManagedCluster) {
	if cluster == nil {
		s.observe(&s.address, "", nil, fmt.Errorf("there is no ManagedCluster %s", s.cluster))
		return
	}
	host, ca, err := locate(cluster)
	if err != nil {
		err = fmt.Errorf("ManagedCluster %s: %w", s.cluster, err)
	}
	s.observe(&s.address, host, ca, err)
}

// locate returns the address and the CA bundle of the API server of a ManagedCluster.
func locate(cluster *clusterv1.ManagedCluster) (host string, ca []byte, err error) {
	configs := cluster.Spec.ManagedClusterClientConfigs
	if len(configs) == 0 || configs[0].URL == "" {
		return "", nil, errors.New("spec.managedClusterClientConfigs contains no URL of the API server")
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

// secureHost completes an address. It returns an error for an address to which the token would be sent unencrypted.
func secureHost(address string) (string, error) {
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	parsed, err := url.Parse(address)
	if err != nil {
		return "", fmt.Errorf("address of the API server: %w", err)
	}
	if parsed.Scheme != "https" || parsed.Host == "" {
		return "", fmt.Errorf("address of the API server: %q is not an https URL", address)
	}
	return address, nil
}

// failed stores the error of reading the hub, for callers that wait.
func (s *Source) failed(problem *error, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *problem != nil {
		*problem = fmt.Errorf("request to the hub %s: %w", s.hub.address, err)
	}
}

// update updates the current credentials from the observed state. The caller holds mu.
func (s *Source) update() {
	if s.secret.value == "" {
		return
	}
	old := s.current.Load()
	bundle := joinPEM(s.secret.ca, s.address.ca)
	next := &credentials{token: s.secret.value}
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

// renew returns the credentials for the retry of a refused request. These are the current credentials if they are
// newer, or else credentials that it reads from the hub. If there are no newer credentials, it returns the used ones.
func (s *Source) renew(ctx context.Context, refused *credentials) *credentials {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	select {
	case s.reading <- struct{}{}:
		defer func() { <-s.reading }()
	case <-ctx.Done():
		return s.current.Load()
	}
	// If many requests are refused concurrently, the first one reads for all.
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
		// The certificates may have changed. A deleted ManagedCluster changes nothing here.
		if cluster, err := s.hub.clusters.ManagedClusters().Get(ctx, s.cluster, metav1.GetOptions{}); err == nil {
			s.observeCluster(cluster)
		}
	}
	return s.current.Load()
}
