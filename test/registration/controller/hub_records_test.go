package registration_test

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
)

// storedRecords keeps registrations as custom resources.
type storedRecords struct {
	client rest.Interface
	read   versioned.Interface

	mu       sync.Mutex
	reserved map[string]types.UID
}

func (s *storedRecords) Get(ctx context.Context, cluster string) (*registerv1alpha1.ManagedClusterRegistration, error) {
	return s.read.RegisterV1alpha1().ManagedClusterRegistrations().Get(ctx, cluster, metav1.GetOptions{})
}

func (s *storedRecords) Create(ctx context.Context, record *registerv1alpha1.ManagedClusterRegistration) (*registerv1alpha1.ManagedClusterRegistration, error) {
	record = withKind(record)
	out := &registerv1alpha1.ManagedClusterRegistration{}
	return out, s.client.Post().Resource("managedclusters").Body(record).Do(ctx).Into(out)
}

func withKind(record *registerv1alpha1.ManagedClusterRegistration) *registerv1alpha1.ManagedClusterRegistration {
	record = record.DeepCopy()
	record.APIVersion, record.Kind = registerv1alpha1.SchemeGroupVersion.String(), "ManagedClusterRegistration"
	return record
}

func (s *storedRecords) Update(ctx context.Context, cluster string, change func(*registerv1alpha1.ManagedClusterRegistration) error) (*registerv1alpha1.ManagedClusterRegistration, error) {
	out := &registerv1alpha1.ManagedClusterRegistration{}
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		current, err := s.Get(ctx, cluster)
		if err != nil {
			return err
		}
		update := withKind(current)
		if err := change(update); err != nil {
			return err
		}
		update.TypeMeta = current.TypeMeta
		if equality.Semantic.DeepEqual(update, current) {
			*out = *current
			return nil
		}
		return s.client.Put().Resource("managedclusters").Name(cluster).Body(withKind(update)).Do(ctx).Into(out)
	})
	return out, err
}

func (s *storedRecords) Delete(ctx context.Context, cluster string, uid types.UID) error {
	return s.client.Delete().Resource("managedclusters").Name(cluster).
		Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}).Do(ctx).Error()
}

func (s *storedRecords) Reserve(_ context.Context, hash string, holder registration.Holder) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if uid, taken := s.reserved[hash]; taken && uid != holder.ClusterUID {
		return registration.ErrClaimed
	}
	s.reserved[hash] = holder.ClusterUID
	return nil
}

func (s *storedRecords) Reserved(_ context.Context, hash string) (*registration.Holder, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if uid, taken := s.reserved[hash]; taken {
		return &registration.Holder{ClusterUID: uid}, nil
	}
	return nil, nil
}

func (s *storedRecords) Release(_ context.Context, hash string, uid types.UID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reserved[hash] == uid {
		delete(s.reserved, hash)
	}
	return nil
}
