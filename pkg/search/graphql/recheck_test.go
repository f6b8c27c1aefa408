package graphql_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/graphql"
)

// rights is an authorizer that allows jane to use graphql until the permission is revoked.
type rights struct {
	lock    sync.Mutex
	revoked bool
	err     error
}

func (r *rights) set(revoked bool, err error) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.revoked, r.err = revoked, err
}

// authorize is an authorizer.AuthorizerFunc.
func (r *rights) authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.revoked || r.err != nil || a.GetUser().GetName() != "jane" || a.GetVerb() != "list" || a.GetResource() != "graphql" {
		return authorizer.DecisionNoOpinion, "", r.err
	}
	return authorizer.DecisionAllow, "", nil
}

// revocable connects jane to a server that checks the permission again at the given interval.
func revocable(t *testing.T, protocol string, every time.Duration) (*server, *client, *rights) {
	t.Helper()
	may := &rights{}
	s := shop(t, func(c *graphql.Config) {
		c.Authorizer, c.Limits.Recheck = authorizer.AuthorizerFunc(may.authorize), every
	})
	return s, s.connect("jane", protocol), may
}

// forbidden waits until the connection is closed because the permission was revoked. It fails if
// data arrives before.
func (c *client) forbidden() {
	c.t.Helper()
	for {
		got, err := c.read()
		if err == nil {
			if got.Type == "next" || got.Type == "data" {
				c.t.Errorf("message before the end = %s: %s, want no data", got.Type, got.Payload)
			}
			continue
		}
		var closed *websocket.CloseError
		if !errors.As(err, &closed) || closed.Code != 4403 || closed.Text != "Forbidden" {
			c.t.Errorf("connection error = %v, want code 4403 Forbidden", err)
		}
		return
	}
}

func TestConnectionEndsAfterRevocation(t *testing.T) {
	for _, protocol := range []string{transportWS, legacyWS} {
		t.Run(protocol, func(t *testing.T) {
			t.Run("during a subscription", func(t *testing.T) {
				s, c, may := revocable(t, protocol, 10*time.Millisecond)
				s.watching(c, "1", `{"filters":[{"property":"kind","values":["Pod"]}]}`)
				may.set(true, nil)
				c.forbidden()
			})
			t.Run("at the start of an operation", func(t *testing.T) {
				_, c, may := revocable(t, protocol, time.Hour)
				c.subscribe("1", `{ search(input: {keywords: ["web"]}) { count } }`, "")
				for got := c.receive(); got.Type != "complete"; got = c.receive() {
					if got.Type == "error" {
						t.Fatalf("error = %s, want the end of the connection", got.Payload)
					}
				}
				may.set(true, nil)
				c.subscribe("2", `{ search(input: {keywords: ["web"]}) { count } }`, "")
				c.forbidden()
			})
		})
	}
}

// TestConnectionStaysWhileAuthorizerFails checks that connections stay open but start no operations
// while the authorizer fails.
func TestConnectionStaysWhileAuthorizerFails(t *testing.T) {
	_, c, may := revocable(t, transportWS, 5*time.Millisecond)
	may.set(false, errors.New("dial tcp 192.0.2.1:6443"))
	c.subscribe("1", `{ messages { id } }`, "")
	got := c.receive()
	if payload := string(got.Payload); got.Type != "error" || !strings.Contains(payload, "ServiceUnavailable") || strings.Contains(payload, "192.0.2.1") {
		t.Errorf("message = %s %s, want the error ServiceUnavailable without the address", got.Type, payload)
	}
	may.set(false, nil)
	c.subscribe("2", `{ messages { id } }`, "")
	if got := c.receive(); got.ID != "2" || got.Type != "next" {
		t.Errorf("message = %s of %s: %s, want data of 2", got.Type, got.ID, got.Payload)
	}
}

// awayEngine is an engine without its database.
type awayEngine struct{ search.Engine }

var errAway = errors.Join(search.ErrUnavailable, errors.New("dial tcp 192.0.2.1:5432"))

func (awayEngine) Complete(context.Context, visibility.Scope, *search.CompletionRequest) (*search.Completion, error) {
	return nil, errAway
}

func TestDatabaseUnavailable(t *testing.T) {
	s := serve(t, func(c *graphql.Config) { c.Engine = awayEngine{c.Engine} })
	same(t, "answer", s.ask("jane", `{ searchComplete(property: "kind") }`, ""), `{"data":{"searchComplete":null},"errors":[{
		"message":"the search engine is unavailable; try again later","path":["searchComplete"],"extensions":{"code":"ServiceUnavailable"}}]}`)
}
