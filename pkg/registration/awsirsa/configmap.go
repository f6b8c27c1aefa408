package awsirsa

import (
	"context"
	"fmt"
	"maps"
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

// add maps a role to exactly this user and these groups.
func (a *awsAuth) add(ctx context.Context, wanted mapping) error {
	return a.edit(ctx, true, func(roles string) (string, error) { return addMapping(roles, wanted) })
}

// remove removes all mappings of a role.
func (a *awsAuth) remove(ctx context.Context, roleARN string) error {
	return a.edit(ctx, false, func(roles string) (string, error) { return removeMapping(roles, roleARN) })
}

func (a *awsAuth) edit(ctx context.Context, create bool, change func(roles string) (string, error)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	outdated := func(err error) bool {
		return ctx.Err() == nil && (apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err))
	}
	err := retry.OnError(authBackoff, outdated, func() error {
		current, err := a.configMaps.Get(ctx, authName, metav1.GetOptions{})
		missing := apierrors.IsNotFound(err)
		switch {
		case missing && !create:
			return nil
		case missing:
			current = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: authNamespace, Name: authName}}
		case err != nil:
			return err
		}
		before := current.Data[rolesKey]
		after, err := change(before)
		if err != nil {
			return fmt.Errorf("%s cannot be parsed and was not changed: %w", rolesKey, err)
		}
		if after == before {
			return nil
		}
		update := current.DeepCopy()
		update.Data = maps.Clone(update.Data)
		if update.Data == nil {
			update.Data = map[string]string{}
		}
		update.Data[rolesKey] = after
		if missing {
			_, err = a.configMaps.Create(ctx, update, metav1.CreateOptions{})
		} else {
			_, err = a.configMaps.Update(ctx, update, metav1.UpdateOptions{})
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("ConfigMap %s/%s: %w", authNamespace, authName, err)
	}
	return nil
}

// check checks with dry-run requests whether the server can read and write the ConfigMap. It returns the problem with its
// remedy, or an empty string.
func (a *awsAuth) check(ctx context.Context) (string, error) {
	const (
		grant = "apply the Role of artifacts/deploy/components/aws-auth, as clusteradm init --eks-auth=ConfigMap does"
		name  = "ConfigMap " + authNamespace + "/" + authName
	)
	current, err := a.configMaps.Get(ctx, authName, metav1.GetOptions{})
	verb := "update"
	switch {
	case apierrors.IsNotFound(err):
		verb = "create"
		missing := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: authNamespace, Name: authName}}
		if _, err = a.configMaps.Create(ctx, missing, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); apierrors.IsAlreadyExists(err) {
			err = nil
		}
	case err != nil:
		verb = "get"
	default:
		if _, parseErr := parseRoles(current.Data[rolesKey]); parseErr != nil {
			return fmt.Sprintf("%s: %s cannot be parsed: %v; correct it manually", name, rolesKey, parseErr), nil
		}
		if _, err = a.configMaps.Update(ctx, current, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}); apierrors.IsConflict(err) {
			err = nil // a concurrent write proves that the ConfigMap is writable
		}
	}
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("the server cannot %s the %s: %v; %s", verb, name, err, grant), nil
	case err != nil:
		return "", fmt.Errorf("%s the %s: %w", verb, name, err)
	}
	return "", nil
}
