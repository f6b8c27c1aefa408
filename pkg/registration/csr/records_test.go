package csr

import (
	"context"
	"fmt"
	"sync"

	clienttesting "k8s.io/client-go/testing"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
)

var registrations = registerv1alpha1.SchemeGroupVersion.WithResource("managedclusters")

// records stores registrations in the tracker of a fake clientset, where its informers find them.
type records struct {
	registration.Records
	mu      sync.Mutex
	tracker clienttesting.ObjectTracker
}

func (r *records) Get(_ context.Context, cluster string) (*registerv1alpha1.ManagedClusterRegistration, error) {
	object, err := r.tracker.Get(registrations, "", cluster)
	if err != nil {
		return nil, err
	}
	record, ok := object.(*registerv1alpha1.ManagedClusterRegistration)
	if !ok {
		return nil, fmt.Errorf("type of the stored registration = %T, want *ManagedClusterRegistration", object)
	}
	return record.DeepCopy(), nil
}

func (r *records) Update(ctx context.Context, cluster string, change func(*registerv1alpha1.ManagedClusterRegistration) error) (*registerv1alpha1.ManagedClusterRegistration, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	record, err := r.Get(ctx, cluster)
	if err != nil {
		return nil, err
	}
	if err := change(record); err != nil {
		return nil, err
	}
	return record, r.tracker.Update(registrations, record, "")
}
