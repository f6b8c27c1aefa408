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

// add maps a role to exactly this user and these groups.
func (a *awsAuth) add(ctx context.Context, wanted mapping) error {
	return a.edit(ctx, func(roles string) (string, error) { return addMapping(roles, wanted) })
}

func (a *awsAuth) remove(ctx context.Context, roleARN string) error {
	return a.edit(ctx, func(roles string) (string, error) { return removeMapping(roles, roleARN) })
}

func (a *awsAuth) edit(ctx context.Context, change func(roles string) (string, error)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := retry.OnError(authBackoff, func(err error) bool { return ctx.Err() == nil && changed(err) }, func() error {
		auth, exists, err := a.read(ctx)
		if err != nil {
			return err
		}
		before := auth.Data[rolesKey]
		after, err := change(before)
		if err != nil {
			return fmt.Errorf("%s cannot be parsed and was not changed: %w", rolesKey, err)
		}
		if after == before {
			return nil
		}
		auth.Data[rolesKey] = after
		_, err = a.write(ctx, auth, exists)
		return err
	})
	if err != nil {
		return fmt.Errorf("ConfigMap %s/%s: %w", authNamespace, authName, err)
	}
	return nil
}

// read returns the ConfigMap, or an empty one if it does not exist.
func (a *awsAuth) read(ctx context.Context) (auth *corev1.ConfigMap, exists bool, err error) {
	auth, err = a.configMaps.Get(ctx, authName, metav1.GetOptions{})
	exists = !apierrors.IsNotFound(err)
	if !exists {
		auth, err = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: authNamespace, Name: authName}}, nil
	}
	if err == nil && auth.Data == nil {
		auth.Data = map[string]string{}
	}
	return auth, exists, err
}

// write creates or updates the ConfigMap, and returns the verb of the request.
func (a *awsAuth) write(ctx context.Context, auth *corev1.ConfigMap, exists bool, dryRun ...string) (verb string, err error) {
	if exists {
		_, err = a.configMaps.Update(ctx, auth, metav1.UpdateOptions{DryRun: dryRun})
		return "update", err
	}
	_, err = a.configMaps.Create(ctx, auth, metav1.CreateOptions{DryRun: dryRun})
	return "create", err
}

// changed reports whether another client has written the ConfigMap since it was read.
func changed(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

// check checks with dry-run requests whether the server can read and write the ConfigMap. It returns the problem with its
// remedy, or an empty string.
func (a *awsAuth) check(ctx context.Context) (string, error) {
	const (
		grant = "apply the Role of artifacts/deploy/components/aws-auth, as clusteradm init --eks-auth=ConfigMap does"
		name  = "ConfigMap " + authNamespace + "/" + authName
	)
	auth, exists, err := a.read(ctx)
	verb := "get"
	if err == nil {
		if _, parseErr := parseRoles(auth.Data[rolesKey]); parseErr != nil {
			return fmt.Sprintf("%s: %s cannot be parsed: %v; correct it manually", name, rolesKey, parseErr), nil
		}
		verb, err = a.write(ctx, auth, exists, metav1.DryRunAll)
	}
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("the server cannot %s the %s: %v; %s", verb, name, err, grant), nil
	case err != nil && !changed(err):
		return "", fmt.Errorf("%s the %s: %w", verb, name, err)
	}
	return "", nil
}
