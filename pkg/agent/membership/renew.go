package membership

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/klog/v2"
)

const (
	// renewPause and maxRenewPause bound the delay after a failed renewal.
	renewPause    = 5 * time.Second
	maxRenewPause = 10 * time.Minute
	// renewTimeout bounds one attempt. The next attempt continues with the same request.
	renewTimeout = 15 * time.Minute
)

// renewAt returns the time of the renewal of a certificate: a random time between 70 % and 80 % of
// its lifetime, so that clusters that joined together do not renew together.
func renewAt(certificate *x509.Certificate) time.Time {
	life := certificate.NotAfter.Sub(certificate.NotBefore)
	return certificate.NotBefore.Add(life*7/10 + rand.N(life/10+1))
}

// renew requests new certificates before the current ones expire.
func (d *csrDriver) renew(ctx context.Context, hub *hubClients, renewed func(context.Context, *identity) error) {
	logger := klog.FromContext(ctx)
	for {
		known := d.store.last()
		if known == nil {
			return
		}
		certificate, err := certificateOf(known)
		if err != nil {
			// A renewal requires a valid certificate.
			logger.Error(err, "Failed to renew the client certificate")
			return
		}
		certificateExpiry.Set(float64(certificate.NotAfter.Unix()))
		at := renewAt(certificate)
		logger.V(2).Info("The client certificate will be renewed", "at", at, "expires", certificate.NotAfter)
		if !d.sleepUntil(ctx, at) {
			return
		}
		waits, denied := backoff(renewPause, maxRenewPause), backoff(deniedPause, maxDeniedPause)
		for {
			err := d.renewOnce(ctx, hub, renewed)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return
			}
			renewals.WithLabelValues("error").Inc()
			delay := waits.Step()
			if errors.As(err, new(*deniedError)) {
				delay = denied.Step()
			}
			logger.Error(err, "Failed to renew the client certificate; retrying", "expires", certificate.NotAfter, "retryAfter", delay)
			if !pause(ctx, delay, nil) {
				return
			}
		}
	}
}

func (d *csrDriver) sleepUntil(ctx context.Context, at time.Time) bool {
	left := at.Sub(d.clock.Now())
	if left <= 0 {
		return ctx.Err() == nil
	}
	timer := d.clock.NewTimer(left)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

func (d *csrDriver) renewOnce(ctx context.Context, hub *hubClients, renewed func(context.Context, *identity) error) error {
	tryCtx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	known := d.store.last()
	if known == nil {
		return errors.New("the identity of the cluster is unknown")
	}
	change, err := d.obtain(tryCtx, hub, nil, known, func(string) {})
	if err != nil {
		return err
	}
	if known, err = d.store.write(ctx, change); err != nil {
		return err
	}
	if err := renewed(ctx, known); err != nil {
		return fmt.Errorf("use the new certificate: %w", err)
	}
	renewals.WithLabelValues("success").Inc()
	klog.FromContext(ctx).Info("Renewed the client certificate")
	return nil
}
