package integration_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/hub-apiserver/pkg/tokens"
)

// A program that uses the token all the time never sees a 401, through three
// rotations, one of them while the agent is killed.
func TestConsumerFollowsRotation(t *testing.T) {
	f := shared(t)
	const name = "consumed"
	created := account(cluster1, name)
	created.Spec.Rotation.Validity = "24h"
	createAccount(t, f.ocm, created)

	ctx, cancel := context.WithCancel(t.Context())
	hub := must(tokens.NewHub(f.Hub.AdminConfig()))(t)
	source := must(hub.Source(cluster1, name, tokens.Options{Host: f.Members[0].AdminConfig().Host}))(t)
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	running.Go(func() { source.Run(ctx) })
	config := must(source.Config(ctx))(t)
	config.QPS, config.Burst = 200, 200
	client := must(kubernetes.NewForConfig(config))(t)

	var used atomic.Int64
	refused := make(chan error, 1)
	for range 4 {
		running.Go(func() {
			for ctx.Err() == nil {
				// Whoever is authenticated may ask for this.
				_, err := client.Discovery().ServerVersion()
				used.Add(1)
				if apierrors.IsUnauthorized(err) {
					select {
					case refused <- err:
					default:
					}
				}
			}
		})
	}

	accounts := f.ocm.AuthenticationV1beta1().ManagedServiceAccounts(cluster1)
	seen := map[string]bool{string(must(f.hub.CoreV1().Secrets(cluster1).Get(ctx, name, metav1.GetOptions{}))(t).Data["token"]): true}
	for rotation := range 3 {
		patch := fmt.Sprintf(`{"spec":{"rotation":{"validity":"%dh"}}}`, 25+rotation)
		must(accounts.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))(t)
		if rotation == 1 {
			// The agent may be before or after any of its writes.
			if err := f.Members[0].Agent.Restart(ctx); err != nil {
				t.Fatal(err)
			}
		}
		before := used.Load()
		eventually(t, "another token is used", func(ctx context.Context) error {
			secret, err := f.hub.CoreV1().Secrets(cluster1).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if seen[string(secret.Data["token"])] {
				return errors.New("the token is the same")
			}
			if used.Load() < before+100 {
				return errors.New("it was hardly used yet")
			}
			seen[string(secret.Data["token"])] = true
			return nil
		})
	}
	select {
	case err := <-refused:
		t.Errorf("after %d requests: %v", used.Load(), err)
	default:
	}
}
