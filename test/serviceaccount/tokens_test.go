package serviceaccount

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/clusterclient"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// A consumer that sends requests continuously follows three rotations of its token. One rotation
// happens while the agent restarts. None of the requests fails.
func TestConsumerFollowsRotation(t *testing.T) {
	f := shared(t)
	const name = "consumed"
	created := framework.NewAccount(framework.Cluster1, name)
	created.Spec.Rotation.Validity = "24h"
	framework.CreateAccount(t, f.OCM, created)

	ctx, cancel := context.WithCancel(t.Context())
	hub := framework.Must(clusterclient.NewHub(f.Hub.AdminConfig()))(t)
	source := framework.Must(hub.Source(framework.Cluster1, name, clusterclient.Options{Host: f.Members[0].AdminConfig().Host}))(t)
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	running.Go(func() { source.Run(ctx) })
	config := framework.Must(source.Config(ctx))(t)
	config.QPS, config.Burst = 200, 200
	client := framework.Must(kubernetes.NewForConfig(config))(t)

	// Tokens and SelfSubjectReviews contain the ID by which the API server identifies a token.
	used := func(ctx context.Context) (string, error) {
		review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return "", err
		}
		return strings.TrimPrefix(strings.Join(review.Status.UserInfo.Extra["authentication.kubernetes.io/credential-id"], ","), "JTI="), nil
	}
	reported := func(ctx context.Context) (string, error) {
		secret, err := f.HubClient.CoreV1().Secrets(framework.Cluster1).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return tokenID(secret.Data[authenticationv1beta1.SecretTokenKey])
	}

	failed := make(chan error, 1)
	for range 4 {
		running.Go(func() {
			for ctx.Err() == nil {
				if _, err := used(ctx); err != nil && ctx.Err() == nil {
					select {
					case failed <- err:
					default:
					}
				}
			}
		})
	}

	accounts := f.OCM.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1)
	seen := map[string]bool{framework.Must(reported(ctx))(t): true}
	for rotation := range 3 {
		patch := fmt.Sprintf(`{"spec":{"rotation":{"validity":"%dh"}}}`, 25+rotation)
		framework.Must(accounts.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))(t)
		if rotation == 1 {
			// The agent stops at an arbitrary point between its writes.
			if err := f.Members[0].Agent.Restart(ctx); err != nil {
				t.Fatal(err)
			}
		}
		framework.Eventually(t, "the consumer uses the new token", func(ctx context.Context) error {
			wanted, err := reported(ctx)
			if err != nil {
				return err
			}
			if seen[wanted] {
				return errors.New("reported token is unchanged, want a new token")
			}
			if got, err := used(ctx); err != nil || got != wanted {
				return fmt.Errorf("token of the consumer = %q, want %q: %w", got, wanted, err)
			}
			seen[wanted] = true
			return nil
		})
	}
	select {
	case err := <-failed:
		t.Errorf("request of the consumer = %v, want nil", err)
	default:
	}
}

// tokenID returns the ID by which the API server identifies a token.
func tokenID(token []byte) (string, error) {
	parts := strings.Split(string(token), ".")
	if len(parts) != 3 {
		return "", fmt.Errorf("token has %d parts, want 3", len(parts))
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", err
	}
	var claims struct {
		ID string `json:"jti"`
	}
	err = json.Unmarshal(payload, &claims)
	return claims.ID, err
}
