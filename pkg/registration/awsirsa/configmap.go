package awsirsa

import (
	"context"
	"errors"
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

// errUnparsed is the error of a ConfigMap whose roles are malformed.
var errUnparsed = errors.New(rolesKey + " cannot be parsed and was not changed")

// check returns why the server cannot read and write the ConfigMap, with the remedy. It writes with dry-run.
func (a *awsAuth) check(ctx context.Context) (string, error) {
	err := a.edit(ctx, "", nil, metav1.DryRunAll)
	switch {
	case errors.Is(err, errUnparsed):
		return err.Error() + "; correct it manually", nil
	case apierrors.IsForbidden(err):
		return err.Error() + "; apply the Role of artifacts/deploy/components/aws-auth, as clusteradm init --eks-auth=ConfigMap does", nil
	}
	return "", err
}

// edit maps a role to exactly the given entries. A dry run sends the request even if nothing changes.
func (a *awsAuth) edit(ctx context.Context, roleARN string, wanted []mapping, dryRun ...string) error {
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
			return fmt.Errorf("%w: %w", errUnparsed, err)
		}
		if after == before && len(dryRun) == 0 {
			return nil
		}
		if auth.Data == nil {
			auth.Data = map[string]string{}
		}
		auth.Data[rolesKey] = after
		if missing {
			_, err = a.configMaps.Create(ctx, auth, metav1.CreateOptions{DryRun: dryRun})
		} else {
			_, err = a.configMaps.Update(ctx, auth, metav1.UpdateOptions{DryRun: dryRun})
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
