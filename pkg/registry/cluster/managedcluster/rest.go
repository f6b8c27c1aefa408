package managedcluster

import (
	"context"
	"fmt"

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

// REST serves ManagedClusters. Its checks run after admission, when the object is complete.
type REST struct {
	*definition.REST
	guard definition.Guard[*cluster.ManagedCluster]
	// registration is nil for a server that does not register clusters.
	registration Registration
}

// Create implements rest.Creater.
func (r *REST) Create(ctx context.Context, obj runtime.Object, admit rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	if r.registration == nil {
		return r.REST.Create(ctx, obj, r.guard.AdmitCreate(admit), options)
	}
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
		mc, err := versioned(obj)
		if err != nil {
			return err
		}
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
		var err error
		if stored, err = versioned(created); err != nil {
			return // the controller registers it
		}
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
	if r.registration == nil {
		return r.REST.Update(ctx, name, objInfo, r.guard.AdmitCreate(admitCreate), r.guard.AdmitUpdate(admitUpdate), forceAllowCreate, options)
	}
	dryRun, decided := dryrun.IsDryRun(options.DryRun), decisionOf(ctx) != nil
	var admitted []*clusterv1.ManagedCluster
	var before *clusterv1.ManagedCluster
	guarded := r.guard.AdmitUpdate(admitUpdate)
	updated, created, err := r.REST.Update(ctx, name, objInfo, r.admitCreate(admitCreate, dryRun, &admitted),
		func(ctx context.Context, obj, old runtime.Object) error {
			if err := guarded(ctx, obj, old); err != nil {
				return err
			}
			mc, err := versioned(obj)
			if err != nil {
				return err
			}
			if before, err = versioned(old); err != nil {
				return err
			}
			return r.registration.AdmitUpdate(ctx, mc, before, decided, dryRun)
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
		if mc, err := versioned(updated); err == nil && before != nil {
			r.registration.Updated(ctx, mc, before, decided)
		}
	}
	return updated, created, err
}

// Delete implements rest.GracefulDeleter.
func (r *REST) Delete(ctx context.Context, name string, admit rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	if r.registration == nil {
		return r.REST.Delete(ctx, name, admit, options)
	}
	var mc *clusterv1.ManagedCluster
	deleted, gone, err := r.REST.Delete(ctx, name, func(ctx context.Context, obj runtime.Object) error {
		if admit != nil {
			if err := admit(ctx, obj); err != nil {
				return err
			}
		}
		var err error
		mc, err = versioned(obj.DeepCopyObject())
		return err
	}, options)
	if err == nil && mc != nil && (options == nil || !dryrun.IsDryRun(options.DryRun)) {
		r.registration.Deleted(ctx, mc, gone)
	}
	return deleted, gone, err
}

func internal(obj runtime.Object) (*cluster.ManagedCluster, error) {
	mc, ok := obj.(*cluster.ManagedCluster)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("unexpected type %T in the store of ManagedClusters", obj))
	}
	return mc, nil
}

// versioned converts an object to the served version.
func versioned(obj runtime.Object) (*clusterv1.ManagedCluster, error) {
	mc, err := internal(obj)
	if err != nil {
		return nil, err
	}
	out := &clusterv1.ManagedCluster{}
	if err := clusterv1.Convert_cluster_ManagedCluster_To_v1_ManagedCluster(mc, out, nil); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("converting ManagedCluster %s: %w", mc.Name, err))
	}
	return out, nil
}
