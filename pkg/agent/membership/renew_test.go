package membership

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// member returns the driver of a registrar whose Secret contains a certificate of a hub.
func member(t *testing.T, hub *fakeHub) *csrDriver {
	t.Helper()
	r := newRegistrar(t, Config{})
	known, err := r.named(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	d := r.driver.(*csrDriver)
	change, err := d.obtain(t.Context(), hub.hubClients, nil, known, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.store.write(t.Context(), change); err != nil {
		t.Fatal(err)
	}
	return d
}

// The tests use the clock of synctest, so they take no time.
func TestCertificateIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := newHub(t)
		d := member(t, hub)
		first, err := certificateOf(d.store.last())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		var after []time.Duration
		d.renew(ctx, hub.hubClients, func(_ context.Context, known *identity) error {
			after = append(after, time.Since(began))
			renewed, err := certificateOf(known)
			if err != nil || renewed.SerialNumber.Cmp(first.SerialNumber) <= 0 || d.usable(known) != nil {
				t.Errorf("renewed certificate = %v, %v, want a newer usable certificate", renewed, err)
			}
			if len(after) == 2 {
				cancel()
			}
			return nil
		})
		if len(after) != 2 || after[0] < 42*time.Minute || after[0] > 48*time.Minute+time.Second {
			t.Errorf("renewed after %v, want 2 renewals, each at 70 to 80 %% of an hour", after)
		}
	})
}

func TestDeniedRenewalIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := newHub(t)
		d := member(t, hub)
		hub.denied = "NotNow"
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		time.AfterFunc(50*time.Minute, func() { hub.denied = "" })
		d.renew(ctx, hub.hubClients, func(context.Context, *identity) error {
			cancel()
			return nil
		})
		if took := time.Since(began); took < 50*time.Minute || took >= time.Hour {
			t.Errorf("renewed after %s, want after 50 minutes and before the certificate expires", took)
		}
		// The first request was signed. Each denied request is followed by another one after a
		// delay.
		if n := len(hub.requests); n < 3 || n > 12 {
			t.Errorf("requests = %d, want 3 to 12", n)
		}
	})
}

func TestRenewalEndsWithoutCertificate(t *testing.T) {
	r := newRegistrar(t, Config{})
	d := r.driver.(*csrDriver)
	for name, known := range map[string]*identity{"no identity": nil, "no certificate": {data: map[string][]byte{}}} {
		d.store.held.Store(known)
		d.renew(t.Context(), newHub(t).hubClients, func(context.Context, *identity) error {
			t.Errorf("%s: renew() called renewed, want no call", name)
			return nil
		})
	}
}
