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
	"open-cluster-management.io/hub-apiserver/pkg/registry/search/graphql"
	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// rights is an authorizer in which everyone may use graphql until that is revoked.
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

// revocable connects jane, whose right is decided again as often as given.
func revocable(t *testing.T, protocol string, every time.Duration) (*server, *client, *rights) {
	t.Helper()
	may := &rights{}
	s := shop(t, func(c *graphql.Config) {
		c.Authorizer, c.Limits.Recheck = authorizer.AuthorizerFunc(may.authorize), every
	})
	return s, s.connect("jane", protocol), may
}

// forbidden waits until the connection is closed because the right was revoked. No data may come before.
func (c *client) forbidden() {
	c.t.Helper()
	for {
		got, err := c.read()
		if err == nil {
			if got.Type == "next" || got.Type == "data" {
				c.t.Errorf("got %s: %s", got.Type, got.Payload)
			}
			continue
		}
		var closed *websocket.CloseError
		if !errors.As(err, &closed) || closed.Code != 4403 || closed.Text != "Forbidden" {
			c.t.Errorf("the connection ends with %v, want code 4403", err)
		}
		return
	}
}

func TestConnectionEndsWhenItsRightIsRevoked(t *testing.T) {
	for _, protocol := range []string{transportWS, legacyWS} {
		t.Run(protocol, func(t *testing.T) {
			t.Run("while a subscription runs", func(t *testing.T) {
				s, c, may := revocable(t, protocol, 10*time.Millisecond)
				s.watching(c, "1", `{"filters":[{"property":"kind","values":["Pod"]}]}`)
				may.set(true, nil)
				c.forbidden()
			})
			t.Run("when an operation begins", func(t *testing.T) {
				_, c, may := revocable(t, protocol, time.Hour)
				c.subscribe("1", `{ search(input: {keywords: ["web"]}) { count } }`, "")
				for got := c.receive(); got.Type != "complete"; got = c.receive() {
					if got.Type == "error" {
						t.Fatalf("got %s", got.Payload)
					}
				}
				may.set(true, nil)
				c.subscribe("2", `{ search(input: {keywords: ["web"]}) { count } }`, "")
				c.forbidden()
			})
		})
	}
}

// Nobody is thrown out because the hub is away, and nobody begins anything.
func TestConnectionStaysWhileItsRightIsNotKnown(t *testing.T) {
	_, c, may := revocable(t, transportWS, 5*time.Millisecond)
	may.set(false, errors.New("dial tcp 192.0.2.1:6443"))
	c.subscribe("1", `{ messages { id } }`, "")
	got := c.receive()
	if payload := string(got.Payload); got.Type != "error" || !strings.Contains(payload, "ServiceUnavailable") || strings.Contains(payload, "192.0.2.1") {
		t.Errorf("got %s %s, want an error that says to try again", got.Type, payload)
	}
	may.set(false, nil)
	c.subscribe("2", `{ messages { id } }`, "")
	if got := c.receive(); got.ID != "2" || got.Type != "next" {
		t.Errorf("got %s of %s: %s", got.Type, got.ID, got.Payload)
	}
}

// awayEngine is an engine whose database is away.
type awayEngine struct{ search.Engine }

var errAway = errors.Join(search.ErrUnavailable, errors.New("dial tcp 192.0.2.1:5432"))

func (awayEngine) Complete(context.Context, visibility.Scope, *search.CompletionRequest) (*search.Completion, error) {
	return nil, errAway
}

func TestDatabaseIsAway(t *testing.T) {
	s := serve(t, func(c *graphql.Config) { c.Engine = awayEngine{c.Engine} })
	same(t, "answer", s.ask("jane", `{ searchComplete(property: "kind") }`, ""), `{"data":{"searchComplete":null},"errors":[{
		"message":"the search engine is not available at the moment; try again","path":["searchComplete"],"extensions":{"code":"ServiceUnavailable"}}]}`)
}
