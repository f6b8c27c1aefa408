package managedcluster

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// Registration registers clusters. The methods AdmitCreate and AdmitUpdate run before a write and may
// refuse it. The other methods run after a write and cannot fail it.
type Registration interface {
	// AdmitCreate checks a new cluster, and reserves the identity that it claims. Created follows if
	// the cluster is stored, NotStored otherwise.
	AdmitCreate(ctx context.Context, mc *clusterv1.ManagedCluster, dryRun bool) error
	Created(ctx context.Context, mc *clusterv1.ManagedCluster)
	NotStored(ctx context.Context, mc *clusterv1.ManagedCluster, cause error)

	// AdmitUpdate checks a changed cluster. Updated follows if the change is stored. decided is true
	// for a write of Decisions.
	AdmitUpdate(ctx context.Context, mc, old *clusterv1.ManagedCluster, decided, dryRun bool) error
	Updated(ctx context.Context, mc, old *clusterv1.ManagedCluster, decided bool)

	// Deleted follows a deletion. gone is true if the cluster had no finalizers.
	Deleted(ctx context.Context, mc *clusterv1.ManagedCluster, gone bool)
}

// REST serves ManagedClusters and registers them. Its checks run after admission, when the object is complete.
type REST struct {
	*definition.REST
	guard        definition.Guard[*cluster.ManagedCluster]
	registration Registration
}

// Create implements rest.Creater.
func (r *REST) Create(ctx context.Context, obj runtime.Object, admit rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	dryRun := dryrun.IsDryRun(options.DryRun)
	var admitted []*clusterv1.ManagedCluster
	created, err := r.REST.Create(ctx, obj, r.admitCreate(admit, dryRun, &admitted), options)
	if !dryRun {
		r.afterCreate(ctx, created, err, admitted)
	}
	return created, err
}

// admitCreate collects the admitted clusters. With a generated name there may be several tries.
func (r *REST) admitCreate(admit rest.ValidateObjectFunc, dryRun bool, admitted *[]*clusterv1.ManagedCluster) rest.ValidateObjectFunc {
	guarded := r.guard.AdmitCreate(admit)
	return func(ctx context.Context, obj runtime.Object) error {
		if err := guarded(ctx, obj); err != nil {
			return err
		}
		mc := versioned(obj)
		if err := r.registration.AdmitCreate(ctx, mc, dryRun); err != nil {
			return err
		}
		*admitted = append(*admitted, mc)
		return nil
	}
}

func (r *REST) afterCreate(ctx context.Context, created runtime.Object, cause error, admitted []*clusterv1.ManagedCluster) {
	var stored *clusterv1.ManagedCluster
	if cause == nil {
		stored = versioned(created)
		r.registration.Created(ctx, stored)
	}
	for _, mc := range admitted {
		switch {
		case stored == nil:
			r.registration.NotStored(ctx, mc, cause)
		case stored.UID != mc.UID:
			r.registration.NotStored(ctx, mc, apierrors.NewAlreadyExists(clusterv1.Resource("managedclusters"), mc.Name))
		}
	}
}

// Update implements rest.Updater. It also serves patches and server-side apply, which may create
// objects.
func (r *REST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, admitCreate rest.ValidateObjectFunc, admitUpdate rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	dryRun, decided := dryrun.IsDryRun(options.DryRun), decisionOf(ctx) != nil
	var admitted []*clusterv1.ManagedCluster
	var before *clusterv1.ManagedCluster
	guarded := r.guard.AdmitUpdate(admitUpdate)
	updated, created, err := r.REST.Update(ctx, name, objInfo, r.admitCreate(admitCreate, dryRun, &admitted),
		func(ctx context.Context, obj, old runtime.Object) error {
			if err := guarded(ctx, obj, old); err != nil {
				return err
			}
			before = versioned(old)
			return r.registration.AdmitUpdate(ctx, versioned(obj), before, decided, dryRun)
		}, forceAllowCreate, options)
	switch {
	case dryRun:
	case len(admitted) > 0 && (created || err != nil):
		r.afterCreate(ctx, updated, err, admitted)
	case err == nil:
		// Another request has created the cluster.
		for _, mc := range admitted {
			r.registration.NotStored(ctx, mc, apierrors.NewAlreadyExists(clusterv1.Resource("managedclusters"), mc.Name))
		}
		if before != nil {
			r.registration.Updated(ctx, versioned(updated), before, decided)
		}
	}
	return updated, created, err
}

// Delete implements rest.GracefulDeleter.
func (r *REST) Delete(ctx context.Context, name string, admit rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	var mc *clusterv1.ManagedCluster
	deleted, gone, err := r.REST.Delete(ctx, name, func(ctx context.Context, obj runtime.Object) error {
		if err := admit(ctx, obj); err != nil {
			return err
		}
		mc = versioned(obj.DeepCopyObject())
		return nil
	}, options)
	if err == nil && mc != nil && (options == nil || !dryrun.IsDryRun(options.DryRun)) {
		r.registration.Deleted(ctx, mc, gone)
	}
	return deleted, gone, err
}

// versioned returns a shallow copy of an object in the served version.
func versioned(obj runtime.Object) *clusterv1.ManagedCluster {
	out := clusterv1.ManagedCluster(*obj.(*cluster.ManagedCluster))
	return &out
}
