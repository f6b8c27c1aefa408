package managedclusterregistration

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

const (
	// reservedFor is how long an identity stays reserved for a request that has not written its
	// claim yet. The generic API server ends requests after half a minute, and the clocks of
	// replicas may differ by a minute.
	reservedFor = 2 * time.Minute
	// renewAfter is the minimum age of a reservation that a repeated request renews.
	renewAfter = 30 * time.Second
	// reserveTries limits the tries of a reservation that conflicts with other requests.
	reserveTries = 5
	// renewedAnnotation is the time of the last reservation of an identity.
	renewedAnnotation = "register.open-cluster-management.io/renewed-at"
)

// Records stores registrations, and the identities that are reserved for them, in the stores of the
// row of ManagedClusterRegistrations.
//
// A reserved identity is an object of the same type. Its name is the hash, so that etcd lets only one
// request create it. It belongs to its holder while the registration of the holder contains the claim,
// or while the holder is a ManagedCluster without registration. Otherwise it remains from a failed
// request, and becomes free after reservedFor, which exceeds the duration of any request.
type Records struct {
	clusters registration.Clusters
	clock    clock.PassiveClock

	registrations, identities definition.Handle[*definition.REST]
}

var _ registration.Records = &Records{}

// NewRecords returns Records that read ManagedClusters from clusters, and measure the age of reservations with a clock. They return
// errors until their row is served.
func NewRecords(clusters registration.Clusters, clock clock.PassiveClock) *Records {
	return &Records{clusters: clusters, clock: clock}
}

func (r *Records) open(ctx context.Context) (context.Context, *definition.REST, error) {
	return r.registrations.Open(ctx, "ManagedClusterRegistrations", "", metav1.NamespaceNone)
}

func (r *Records) openIdentities(ctx context.Context) (context.Context, *definition.REST, error) {
	return r.identities.Open(ctx, "ManagedClusterRegistrations", "", metav1.NamespaceNone)
}

func typed(obj runtime.Object, err error) (*registerv1alpha1.ManagedClusterRegistration, error) {
	if err != nil {
		return nil, err
	}
	return obj.(*registerv1alpha1.ManagedClusterRegistration), nil
}

// Get implements registration.Records.
func (r *Records) Get(ctx context.Context, cluster string) (*registerv1alpha1.ManagedClusterRegistration, error) {
	ctx, store, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	return typed(store.Get(ctx, cluster, &metav1.GetOptions{}))
}

// Create implements registration.Records.
func (r *Records) Create(ctx context.Context, registration *registerv1alpha1.ManagedClusterRegistration) (*registerv1alpha1.ManagedClusterRegistration, error) {
	ctx, store, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	return typed(store.Create(ctx, registration.DeepCopy(), rest.ValidateAllObjectFunc, &metav1.CreateOptions{}))
}

// Update implements registration.Records.
func (r *Records) Update(ctx context.Context, cluster string, change func(*registerv1alpha1.ManagedClusterRegistration) error) (*registerv1alpha1.ManagedClusterRegistration, error) {
	ctx, store, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	return rewrite(ctx, store, cluster, change)
}

func rewrite(ctx context.Context, store *definition.REST, name string, change func(*registerv1alpha1.ManagedClusterRegistration) error) (*registerv1alpha1.ManagedClusterRegistration, error) {
	return typed(store.Rewrite(ctx, name, rest.DefaultUpdatedObjectInfo(nil), func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
		current := old.(*registerv1alpha1.ManagedClusterRegistration).DeepCopy()
		return current, change(current)
	}, rest.ValidateAllObjectUpdateFunc, &metav1.UpdateOptions{}))
}

// Delete implements registration.Records.
func (r *Records) Delete(ctx context.Context, cluster string, uid types.UID) error {
	ctx, store, err := r.open(ctx)
	if err != nil {
		return err
	}
	_, _, err = store.Delete(ctx, cluster, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	return err
}

// Reserve implements registration.Records.
func (r *Records) Reserve(ctx context.Context, hash string, holder registration.Holder) error {
	ctx, store, err := r.openIdentities(ctx)
	if err != nil {
		return err
	}
	for range reserveTries {
		current, err := typed(store.Get(ctx, hash, &metav1.GetOptions{}))
		if apierrors.IsNotFound(err) {
			_, err = store.Create(ctx, r.reservation(hash, holder), rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				continue
			}
			return err
		}
		if err != nil {
			return err
		}
		if current.Spec.ManagedClusterUID == holder.ClusterUID {
			renewed, err := r.renew(ctx, store, current, holder)
			if renewed || err != nil {
				return err
			}
			continue
		}
		free, err := r.free(ctx, current, holder.ClusterName)
		if err != nil {
			return err
		}
		if !free {
			return registration.ErrClaimed
		}
		_, _, err = store.Delete(ctx, hash, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &current.UID, ResourceVersion: &current.ResourceVersion},
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	return apierrors.NewConflict(registerv1alpha1.Resource(identities), hash, errors.New("too many requests reserve the identity at the same time"))
}

// renew resets the age of a reservation. It reports false if the reservation no longer exists.
func (r *Records) renew(ctx context.Context, store *definition.REST, current *registerv1alpha1.ManagedClusterRegistration, holder registration.Holder) (bool, error) {
	if r.age(current) < renewAfter {
		return true, nil
	}
	wanted := r.reservation(current.Name, holder)
	renewed := false
	_, err := rewrite(ctx, store, current.Name, func(stored *registerv1alpha1.ManagedClusterRegistration) error {
		if renewed = stored.UID == current.UID; renewed {
			stored.Annotations, stored.Spec = wanted.Annotations, wanted.Spec
		}
		return nil
	})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return renewed, err
}

func (r *Records) reservation(hash string, holder registration.Holder) *registerv1alpha1.ManagedClusterRegistration {
	return &registerv1alpha1.ManagedClusterRegistration{
		ObjectMeta: metav1.ObjectMeta{
			Name:        hash,
			Annotations: map[string]string{renewedAnnotation: r.clock.Now().UTC().Format(time.RFC3339)},
			Labels:      map[string]string{clusterv1.ClusterNameLabel: holder.ClusterName},
		},
		Spec: registerv1alpha1.ManagedClusterRegistrationSpec{
			ManagedClusterUID: holder.ClusterUID, Driver: registerv1alpha1.DriverAWSIRSA, IRSA: &holder.Claim,
		},
	}
}

func (r *Records) age(reservation *registerv1alpha1.ManagedClusterRegistration) time.Duration {
	renewed, err := time.Parse(time.RFC3339, reservation.Annotations[renewedAnnotation])
	if err != nil {
		renewed = reservation.CreationTimestamp.Time
	}
	return r.clock.Since(renewed)
}

// free reports whether a cluster of the given name may take over a reservation.
func (r *Records) free(ctx context.Context, reservation *registerv1alpha1.ManagedClusterRegistration, cluster string) (bool, error) {
	holder := reservation.Labels[clusterv1.ClusterNameLabel]
	held, err := r.Get(ctx, holder)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("reading the registration of the holder of an identity: %w", err)
	}
	aged := r.age(reservation) >= reservedFor
	if err == nil && held.Spec.ManagedClusterUID == reservation.Spec.ManagedClusterUID {
		return aged && (held.Status.IRSA == nil || held.Status.IRSA.Hash != reservation.Name), nil
	}
	mc, err := r.clusters.Get(ctx, holder, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("reading the ManagedCluster that holds an identity: %w", err)
	}
	if err == nil && mc.UID == reservation.Spec.ManagedClusterUID {
		return false, nil
	}
	// A request that is repeated for the same cluster need not wait: of two requests that create
	// one cluster, the store refuses one.
	return aged || holder == cluster, nil
}

// Reserved implements registration.Records.
func (r *Records) Reserved(ctx context.Context, hash string) (*registration.Holder, error) {
	ctx, store, err := r.openIdentities(ctx)
	if err != nil {
		return nil, err
	}
	current, err := typed(store.Get(ctx, hash, &metav1.GetOptions{}))
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if free, err := r.free(ctx, current, ""); free || err != nil {
		return nil, err
	}
	holder := &registration.Holder{ClusterName: current.Labels[clusterv1.ClusterNameLabel], ClusterUID: current.Spec.ManagedClusterUID}
	if current.Spec.IRSA != nil {
		holder.Claim = *current.Spec.IRSA
	}
	return holder, nil
}

// Release implements registration.Records.
func (r *Records) Release(ctx context.Context, hash string, clusterUID types.UID) error {
	ctx, store, err := r.openIdentities(ctx)
	if err != nil {
		return err
	}
	current, err := typed(store.Get(ctx, hash, &metav1.GetOptions{}))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || current.Spec.ManagedClusterUID != clusterUID {
		return err
	}
	_, _, err = store.Delete(ctx, hash, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &current.UID}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
