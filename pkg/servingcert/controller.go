package servingcert

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/clock"

	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

const (
	// InjectAnnotation is the annotation of APIServices in which the server writes the certificate
	// authorities. Its value is the namespace and the name of the Secret of the serving certificate.
	InjectAnnotation = "open-cluster-management.io/inject-ca-from-secret"

	fieldManager = "hub-apiserver"
	// maxDecisions limits the writes of one reconciliation. A full renewal takes five.
	maxDecisions = 6
	// recheck is the longest time between two decisions: changes of the Secrets, of APIServices and of the clock take effect
	// after it.
	recheck    = 10 * time.Second
	warnPeriod = 10 * time.Minute
	// lastRetry is short, since the server serves nothing before the first success.
	lastRetry = 10 * time.Second
)

// Controller loads the serving certificate from its Secret, writes and renews it according to its
// policy, and writes the certificate authorities into the APIServices of the Service. Every replica
// runs it. If several replicas write at the same time, one succeeds and the others read its result.
type Controller struct {
	policy     Policy
	hub        kubernetes.Interface
	aggregator aggregator.Interface
	events     events.EventRecorder
	clock      clock.Clock
	content    *Content
	loop       reconcile.Loop
	// warned is when the controller last said that nobody renews the certificate.
	warned time.Time
}

// New returns a Controller. The server serves placeholder until Run has loaded the certificate, so that
// probes reach it.
func New(policy Policy, hub kubernetes.Interface, aggregator aggregator.Interface, recorder events.EventRecorder, placeholder dynamiccertificates.CertKeyContentProvider) *Controller {
	c := &Controller{
		policy: policy, hub: hub, aggregator: aggregator, events: recorder, clock: clock.RealClock{},
		content: &Content{name: "Secret " + policy.Namespace + "/" + policy.Secret},
	}
	c.content.cert, c.content.key = placeholder.CurrentCertKeyContent()
	c.loop = reconcile.Loop{
		Name: "serving-certificate", Reconcile: c.reconcile, LastRetry: lastRetry,
		Initial: []cache.ObjectName{{Namespace: policy.Namespace, Name: policy.Secret}},
	}
	return c
}

// Content returns the certificate to serve.
func (c *Controller) Content() *Content { return c.content }

// Ready is the readiness check.
func (c *Controller) Ready(*http.Request) error { return c.content.check(c.clock.Now()) }

// Run keeps the certificate until ctx ends.
func (c *Controller) Run(ctx context.Context) { c.loop.Run(ctx) }

func (c *Controller) reconcile(ctx context.Context, _ cache.ObjectName) (time.Duration, error) {
	after, err := c.renew(ctx)
	c.content.failed(err)
	return after, err
}

// renew loads the certificate after at most maxDecisions writes, and returns the time until the next
// renewal.
func (c *Controller) renew(ctx context.Context) (time.Duration, error) {
	for range maxDecisions {
		serving, err := c.get(ctx, c.policy.Secret)
		if err != nil {
			return 0, err
		}
		ca, err := c.get(ctx, c.policy.CASecret())
		if err != nil {
			return 0, err
		}
		decision, err := c.policy.Decide(serving, ca, c.clock.Now())
		if err != nil {
			return 0, err
		}
		if decision.Write != nil {
			if err := c.write(ctx, decision); err != nil {
				return 0, err
			}
			continue
		}
		if err := c.load(ctx, serving, ca, decision); err != nil {
			return 0, err
		}
		if err := c.inject(ctx, serving.Data[BundleKey]); err != nil {
			return 0, err
		}
		if decision.Trusted != nil {
			if err := c.write(ctx, Decision{Write: decision.Trusted, Reason: "all APIServices contain the authorities"}); err != nil {
				return 0, err
			}
			continue
		}
		after := recheck
		if !decision.Next.IsZero() {
			after = min(after, decision.Next.Sub(c.clock.Now()))
		}
		return max(after, time.Millisecond), nil
	}
	return 0, fmt.Errorf("the Secrets %s and %s in %s change too often", c.policy.Secret, c.policy.CASecret(), c.policy.Namespace)
}

func (c *Controller) get(ctx context.Context, name string) (*corev1.Secret, error) {
	secret, err := reconcile.OrNil(c.hub.CoreV1().Secrets(c.policy.Namespace).Get(ctx, name, metav1.GetOptions{}))
	if err != nil {
		return nil, fmt.Errorf("reading the Secret %s in %s: %w", name, c.policy.Namespace, err)
	}
	return secret, nil
}

// write creates or updates a Secret, unless another replica was faster.
func (c *Controller) write(ctx context.Context, decision Decision) error {
	secrets, verb := c.hub.CoreV1().Secrets(c.policy.Namespace), "Created"
	secret, err := decision.Write, error(nil)
	if secret.ResourceVersion == "" {
		secret, err = secrets.Create(ctx, secret, metav1.CreateOptions{FieldManager: fieldManager})
	} else {
		verb = "Updated"
		secret, err = secrets.Update(ctx, secret, metav1.UpdateOptions{FieldManager: fieldManager})
	}
	switch {
	case apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err):
		return nil
	case err != nil:
		return fmt.Errorf("writing the Secret %s in %s: %w", decision.Write.Name, c.policy.Namespace, err)
	}
	kind := corev1.EventTypeNormal
	if decision.Repair {
		kind, verb = corev1.EventTypeWarning, "Replaced"
	}
	klog.FromContext(ctx).Info("Wrote the Secret of a serving certificate", "secret", klog.KObj(secret), "action", verb, "reason", decision.Reason)
	c.events.Eventf(secret, nil, kind, "ServingCertificate"+verb, "Renewing", "%s", decision.Reason)
	return nil
}

// load serves the certificate of the Secret.
func (c *Controller) load(ctx context.Context, serving, ca *corev1.Secret, decision Decision) error {
	if serving == nil {
		return fmt.Errorf("the Secret %s in %s does not exist", c.policy.Secret, c.policy.Namespace)
	}
	leaf, changed, err := c.content.load(serving.Data[corev1.TLSCertKey], serving.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return fmt.Errorf("the Secret %s in %s, which the server did not create, does not contain a certificate and its key: correct it, or delete it to let the server create one: %w", serving.Name, serving.Namespace, err)
	}
	if changed {
		klog.FromContext(ctx).Info("Serving another certificate", "secret", klog.KObj(serving), "expires", leaf.NotAfter)
	}
	expiration.WithLabelValues("serving").Set(float64(leaf.NotAfter.Unix()))
	if decision.CAExpires.IsZero() {
		if now := c.clock.Now(); !now.Before(renewal(leaf)) && now.Sub(c.warned) > warnPeriod {
			c.warned = now
			klog.FromContext(ctx).Error(nil, "Nobody renews the serving certificate: the server did not create its Secret", "secret", klog.KObj(serving), "expires", leaf.NotAfter)
			c.events.Eventf(serving, nil, corev1.EventTypeWarning, "ServingCertificateExpires", "Serving",
				"The serving certificate expires at %s. The server does not renew it, because it did not create this Secret. Renew it, or delete the Secret to let the server create one.", leaf.NotAfter.Format(time.RFC3339))
		}
		if authorities, err := certutil.ParseCertsPEM(serving.Data[BundleKey]); err == nil {
			decision.CAExpires = authorities[0].NotAfter
		}
	}
	if !decision.CAExpires.IsZero() {
		expiration.WithLabelValues("ca").Set(float64(decision.CAExpires.Unix()))
	}
	return nil
}

// injects reports whether the server writes its certificate authorities into an APIService.
func (c *Controller) injects(service *apiregistrationv1.APIService) bool {
	to := service.Spec.Service
	return to != nil && to.Namespace == c.policy.Namespace && to.Name == c.policy.Service && !service.Spec.InsecureSkipTLSVerify &&
		service.Annotations[InjectAnnotation] == c.policy.Namespace+"/"+c.policy.Secret
}

// inject writes the certificate authorities into the APIServices that have others.
func (c *Controller) inject(ctx context.Context, bundle []byte) error {
	if len(bundle) == 0 {
		return nil
	}
	services, err := c.aggregator.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing APIServices: %w", err)
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"caBundle": bundle}})
	if err != nil {
		return err
	}
	var errs []error
	for i := range services.Items {
		service := &services.Items[i]
		if !c.injects(service) || bytes.Equal(service.Spec.CABundle, bundle) {
			continue
		}
		_, err := c.aggregator.ApiregistrationV1().APIServices().Patch(ctx, service.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("writing the certificate authorities into APIService %s: %w", service.Name, err))
			continue
		}
		klog.FromContext(ctx).Info("Wrote the certificate authorities of the server into an APIService", "apiService", service.Name)
	}
	return errors.Join(errs...)
}

// Content is the certificate that the server serves. It implements
// dynamiccertificates.CertKeyContentProvider.
type Content struct {
	name string

	mu        sync.Mutex
	cert, key []byte
	// leaf is nil until a certificate is loaded from the Secret.
	leaf      *x509.Certificate
	listeners []dynamiccertificates.Listener
	// err is the reason why the last reconciliation failed.
	err error
}

var _ dynamiccertificates.CertKeyContentProvider = &Content{}

// Name implements dynamiccertificates.CertKeyContentProvider.
func (c *Content) Name() string { return c.name }

// AddListener implements dynamiccertificates.Notifier.
func (c *Content) AddListener(listener dynamiccertificates.Listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners = append(c.listeners, listener)
}

// CurrentCertKeyContent implements dynamiccertificates.CertKeyContentProvider.
func (c *Content) CurrentCertKeyContent() (cert, key []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cert, c.key
}

// load serves another certificate. It returns its leaf, and whether it differs from the previous one.
func (c *Content) load(cert, key []byte) (*x509.Certificate, bool, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if bytes.Equal(c.cert, cert) && bytes.Equal(c.key, key) {
		return c.leaf, false, nil
	}
	c.cert, c.key, c.leaf = cert, key, pair.Leaf
	for _, listener := range c.listeners {
		listener.Enqueue()
	}
	return pair.Leaf, true, nil
}

func (c *Content) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// check returns an error that names the cause if the served certificate is not valid.
func (c *Content) check(now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.leaf == nil && c.err != nil:
		return c.err
	case c.leaf == nil:
		return errors.New("the serving certificate is not loaded yet")
	case !now.Before(c.leaf.NotAfter):
		return errors.Join(fmt.Errorf("the serving certificate expired at %s", c.leaf.NotAfter.Format(time.RFC3339)), c.err)
	case now.Before(c.leaf.NotBefore):
		return errors.Join(fmt.Errorf("the serving certificate is not valid before %s: check the clock of this server", c.leaf.NotBefore.Format(time.RFC3339)), c.err)
	}
	return nil
}
