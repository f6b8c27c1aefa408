package registration

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
	// renewPause to maxRenewPause is how long a failed renewal waits for its next try.
	renewPause    = 5 * time.Second
	maxRenewPause = 10 * time.Minute
	// renewTimeout is how long one try waits for the hub. The next one goes on with the
	// same request.
	renewTimeout = 15 * time.Minute
)

// renewAt is when a certificate is renewed: at a time by chance between 70 and 80 % of
// its life, so that clusters that joined together do not renew together.
func renewAt(certificate *x509.Certificate) time.Time {
	life := certificate.NotAfter.Sub(certificate.NotBefore)
	return certificate.NotBefore.Add(life*7/10 + rand.N(life/10+1))
}

// renew has certificates signed anew before they run out.
func (d *csrDriver) renew(ctx context.Context, hub *hubClients, renewed func(context.Context, *identity) error) {
	logger := klog.FromContext(ctx)
	waits := pauses{first: renewPause, most: maxRenewPause}
	denied := pauses{first: deniedPause, most: maxDeniedPause}
	for {
		known := d.store.last()
		if known == nil {
			return
		}
		certificate, err := certificateOf(known)
		if err != nil {
			// It was there when this began; without it there is nothing to renew with.
			logger.Error(err, "The client certificate cannot be renewed")
			return
		}
		certificateExpiry.Set(float64(certificate.NotAfter.Unix()))
		at := renewAt(certificate)
		logger.V(2).Info("The client certificate will be renewed", "at", at, "expires", certificate.NotAfter)
		if !d.sleepUntil(ctx, at) {
			return
		}
		for {
			err := d.renewOnce(ctx, hub, renewed)
			if err == nil {
				waits.reset()
				denied.reset()
				break
			}
			if ctx.Err() != nil {
				return
			}
			renewals.WithLabelValues("error").Inc()
			delay := waits.step()
			if refusal := (*deniedError)(nil); errors.As(err, &refusal) {
				delay = denied.step()
			}
			logger.Error(err, "The client certificate is not renewed yet", "expires", certificate.NotAfter, "retryAfter", delay)
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
		return errors.New("the Secret with the identity of the cluster is not known")
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
	klog.FromContext(ctx).Info("The client certificate was renewed")
	return nil
}
