package awsirsa

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"
)

const (
	authNamespace = metav1.NamespaceSystem
	authName      = "aws-auth"
	rolesKey      = "mapRoles"
)

// authBackoff is the backoff between attempts to edit after a conflict.
var authBackoff = wait.Backoff{Steps: 8, Duration: 10 * time.Millisecond, Factor: 2, Jitter: 0.5}

// awsAuth is the ConfigMap with which EKS maps IAM roles to users and groups. Others edit it too, so entries and
// comments of others are kept.
type awsAuth struct {
	configMaps coreclient.ConfigMapInterface
	// mu serializes the edits of this server.
	mu sync.Mutex
}

// set maps a role to exactly the given entries.
func (a *awsAuth) set(ctx context.Context, roleARN string, wanted ...mapping) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := retry.OnError(authBackoff, func(err error) bool { return ctx.Err() == nil && changed(err) }, func() error {
		auth, err := a.configMaps.Get(ctx, authName, metav1.GetOptions{})
		missing := apierrors.IsNotFound(err)
		if missing {
			auth, err = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: authNamespace, Name: authName}}, nil
		}
		if err != nil {
			return err
		}
		before := auth.Data[rolesKey]
		after, err := replaceMapping(before, roleARN, wanted)
		if err != nil {
			return fmt.Errorf("%s cannot be parsed and was not changed: %w", rolesKey, err)
		}
		if after == before {
			return nil
		}
		if auth.Data == nil {
			auth.Data = map[string]string{}
		}
		auth.Data[rolesKey] = after
		if missing {
			_, err = a.configMaps.Create(ctx, auth, metav1.CreateOptions{})
		} else {
			_, err = a.configMaps.Update(ctx, auth, metav1.UpdateOptions{})
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("ConfigMap %s/%s: %w", authNamespace, authName, err)
	}
	return nil
}

// changed reports whether another client has written the ConfigMap since it was read.
func changed(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
