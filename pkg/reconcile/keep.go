package reconcile

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

var (
	// ErrTerminating is returned by Keep while the object, or its namespace, is being deleted.
	ErrTerminating = errors.New("still being deleted")
	// ErrIncomplete is returned by Kept for an object that differs from the wanted one.
	ErrIncomplete = errors.New("the object differs from the wanted one")
)

// Object is the constraint of objects that a Keeper repairs.
type Object[T any] interface {
	metav1.Object
	DeepCopy() T
}

// Client is the client of one kind.
type Client[T any] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	Create(ctx context.Context, object T, opts metav1.CreateOptions) (T, error)
	Update(ctx context.Context, object T, opts metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// Keeper creates or repairs one object.
type Keeper[T Object[T]] struct {
	// What names the object in errors.
	What   string
	Client Client[T]
	// Cached reads a cache, which may be outdated or lack the object.
	Cached func(name string) (T, error)
	Wanted T
	// Fix repairs the object. It reports whether it changed the object, or that the object must be replaced.
	Fix func(have T) (changed, replace bool)
	// Remove removes an object that must be replaced. By default the Keeper deletes it.
	Remove func(ctx context.Context, have T) error
}

// Kept returns ErrIncomplete if Keep would write the object, according to the cache.
func (k Keeper[T]) Kept() error {
	have, err := k.Cached(k.Wanted.GetName())
	if apierrors.IsNotFound(err) {
		return ErrIncomplete
	}
	if err != nil {
		return err
	}
	if changed, replace := k.Fix(have.DeepCopy()); changed || replace || have.GetDeletionTimestamp() != nil {
		return ErrIncomplete
	}
	return nil
}

// Keep creates or repairs the object, and writes only a difference. It returns a NotFound error for an object that is deleted
// meanwhile, and does not create it again: the deletion may revoke what the object grants.
func (k Keeper[T]) Keep(ctx context.Context) error {
	read, existed := k.Cached, false
	// If the cache is outdated, the API server refuses the write. The next attempt reads the stored object.
	err := retry.OnError(retry.DefaultRetry, outdated, func() error {
		have, err := read(k.Wanted.GetName())
		read = func(name string) (T, error) { return k.Client.Get(ctx, name, metav1.GetOptions{}) }
		if apierrors.IsNotFound(err) && !existed {
			_, err = k.Client.Create(ctx, k.Wanted, metav1.CreateOptions{})
			return err
		}
		if err != nil {
			return err
		}
		existed = true
		return k.repair(ctx, have)
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrTerminating):
		return fmt.Errorf("%s is %w", k.What, err)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return fmt.Errorf("%s: its namespace is %w", k.What, ErrTerminating)
	}
	return fmt.Errorf("%s: %w", k.What, err)
}

func outdated(err error) bool {
	return (apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

func (k Keeper[T]) repair(ctx context.Context, have T) error {
	if have.GetDeletionTimestamp() != nil {
		return ErrTerminating
	}
	update := have.DeepCopy()
	changed, replace := k.Fix(update)
	if !replace {
		if !changed {
			return nil
		}
		_, err := k.Client.Update(ctx, update, metav1.UpdateOptions{})
		return err
	}
	remove := k.Remove
	if remove == nil {
		remove = func(ctx context.Context, have T) error {
			uid := have.GetUID()
			return k.Client.Delete(ctx, have.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		}
	}
	if err := remove(ctx, have); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	_, err := k.Client.Create(ctx, k.Wanted, metav1.CreateOptions{})
	return err
}
