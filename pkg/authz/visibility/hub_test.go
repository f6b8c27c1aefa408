package visibility_test

import (
	"context"
	"strings"
	"testing"

	"k8s.io/client-go/informers"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/test/await"
)

// TestHubInFleet checks that the entry of the hub in the RBAC of the fleet follows the roles and bindings of the hub, and is
// unknown before these and the authorizers of the hub are known.
func TestHubInFleet(t *testing.T) {
	h := newHub(readsPods(t))
	factory := informers.NewSharedInformerFactory(h.client, 0)
	reviewed := make(chan struct{})
	config := visibility.Config{Mode: visibility.RBAC, Fleet: access.New(), HubCluster: "hub"}
	config.ReviewAuthorizers = func(ctx context.Context) (bool, error) {
		select {
		case <-reviewed:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	follow(&config, factory)
	compiler, err := visibility.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		compiler.Run(ctx)
	}()
	defer func() { cancel(); <-done; factory.Shutdown() }()
	wants := func(decision access.Decision, reason string) {
		t.Helper()
		await.True(t, string(decision)+" "+reason, func() bool {
			answer := config.Fleet.CanI(access.Subject{User: "ann"}, access.Attributes{Verb: "list", Resource: "pods", Namespace: "two"}, []string{"hub"}, 1)[0]
			return answer.Decision == decision && strings.Contains(answer.Reason, reason)
		})
	}
	wants(access.Unknown, "not listed")
	factory.Start(ctx.Done())
	wants(access.Unknown, "authorizers of the hub")
	close(reviewed)
	wants(access.Denied, "")
	await.True(t, "the informers watch", func() bool { return h.watches.Load() >= 4 })
	h.bind(t, "two", "ann")
	wants(access.Allowed, "")
	h.unbind(t, "two", "ann")
	wants(access.Denied, "")
}
