package inventory

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestPagesAreBounded checks that few pages of objects are in memory, and that resources that do not answer
// do not stop the others. The test uses the clock of synctest.
func TestPagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clients{pages: make(chan struct{}, maxPages)}
		first := c.acquire(t.Context())
		for range maxPages - 1 {
			c.acquire(t.Context())
		}
		ended, cancel := context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, cancel)
		time.AfterFunc(time.Second, first)
		for _, test := range []struct {
			name string
			ctx  context.Context
			want time.Duration
		}{
			{"until another page is released", t.Context(), time.Second},
			{"until its context ends", ended, time.Second},
			{"half a minute", t.Context(), pageWait},
		} {
			began := time.Now()
			c.acquire(test.ctx)
			if waited := time.Since(began); waited != test.want {
				t.Errorf("a page that waits %s waited %s, want %s", test.name, waited, test.want)
			}
		}
	})
}
