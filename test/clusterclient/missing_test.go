package clusterclient_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/pkg/clusterclient"
)

// Without a token, the error of Config names the missing part, regardless of how Run and
// Config end. It names Run only if Run did not run while the caller's context was active.
func TestErrorNamesTheMissingPart(t *testing.T) {
	const (
		idle    = "Run is not running"
		unread  = "the Secret robot in namespace cluster1 has not been read yet from the hub https://hub.example"
		timeout = 8 * time.Second
	)
	// The handlers delay callers with frequent errors, and do not use the clock of synctest.
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })

	silent := func(request *http.Request) (*http.Response, error) {
		<-request.Context().Done()
		return nil, request.Context().Err()
	}
	answer := func(code int, body string) exchange {
		return func(request *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: code, Request: request, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(body))}, nil
		}
	}
	forbidden := answer(http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"secrets \"robot\" is forbidden"}`)
	run := func(ctx context.Context, source *clusterclient.Source) { source.Run(ctx) }
	for name, test := range map[string]struct {
		hub exchange
		run func(context.Context, *clusterclient.Source)
		// late is set to call Config after ctx and Run have ended.
		late   bool
		want   string
		blamed bool
	}{
		"hub does not respond":       {hub: silent, run: run, want: unread},
		"hub does not respond, late": {hub: silent, run: run, late: true, want: unread},
		"hub returns 403":            {hub: forbidden, run: run, want: `request to the hub https://hub.example: secrets "robot" is forbidden`},
		"hub returns 403, late":      {hub: forbidden, run: run, late: true, want: `secrets "robot" is forbidden`},
		"hub returns 401":            {hub: answer(http.StatusUnauthorized, ""), run: run, want: "request to the hub https://hub.example: "},
		"hub returns 403 and then does not respond": {hub: func() exchange {
			var asked atomic.Bool
			return func(request *http.Request) (*http.Response, error) {
				if asked.CompareAndSwap(false, true) {
					return forbidden(request)
				}
				return silent(request)
			}
		}(), run: run, want: `secrets "robot" is forbidden`},
		"Run is never called": {hub: silent, run: func(context.Context, *clusterclient.Source) {}, want: unread, blamed: true},
		"Run is called later": {hub: silent, want: unread, run: func(ctx context.Context, source *clusterclient.Source) {
			<-time.After(time.Second)
			source.Run(ctx)
		}},
		"Run ends early": {hub: forbidden, want: `secrets "robot" is forbidden`, blamed: true, run: func(ctx context.Context, source *clusterclient.Source) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			source.Run(ctx)
		}},
		"Run ends early and runs again": {hub: silent, want: unread, run: func(ctx context.Context, source *clusterclient.Source) {
			first, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			source.Run(first)
			source.Run(ctx)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reader, err := clusterclient.NewHub(&rest.Config{Host: "https://hub.example", Transport: test.hub, QPS: -1})
				if err != nil {
					t.Fatal(err)
				}
				source, err := reader.Source("cluster1", robot, clusterclient.Options{Host: "https://cluster1.example"})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				var running sync.WaitGroup
				defer running.Wait()
				running.Go(func() { test.run(ctx, source) })
				if test.late {
					running.Wait()
				}
				_, err = source.Config(ctx)
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("Config() = %v, want DeadlineExceeded", err)
				}
				for _, part := range []string{"account robot on cluster cluster1", test.want} {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("Config() = %v, want an error that contains %q", err, part)
					}
				}
				if blamed := strings.Contains(err.Error(), idle); blamed != test.blamed {
					t.Errorf("error names Run: %v, want %v: %v", blamed, test.blamed, err)
				}
			})
		})
	}
}
