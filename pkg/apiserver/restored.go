package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver/etcd"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/pkg/registry/cluster/managedcluster"
)

const (
	// markTimeout bounds what is read from etcd about the data. stampTimeout bounds the marking of all ManagedClusters.
	markTimeout   = 5 * time.Second
	stampTimeout  = time.Minute
	restoredPause = time.Second
	// clusterPage is the number of ManagedClusters that are read at once.
	clusterPage = 500

	clustersPrefix = "/" + clusterv1.GroupName + "/managedclusters/"
)

// restoredData is known once the server has found out whether it can read the data and whether they were restored from a
// snapshot, and has marked the ManagedClusters of restored data. No object is served before: an agent that lists its
// ManifestWorks first would remove the objects of those that the snapshot does not contain.
type restoredData struct {
	known   atomic.Bool
	restore atomic.Pointer[string]
}

// id returns the ID of the last restore, or an empty string if there was none.
func (r *restoredData) id() string { return ptr.Deref(r.restore.Load(), "") }

// guard makes a generic server refuse requests for objects until the data are known.
func (r *restoredData) guard(generic *genericapiserver.CompletedConfig) {
	build := generic.BuildHandlerChainFunc
	generic.BuildHandlerChainFunc = func(api http.Handler, config *genericapiserver.Config) http.Handler {
		return build(r.handle(api, config.Serializer), config)
	}
}

func (r *restoredData) handle(api http.Handler, codecs runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if r.known.Load() || ok && !info.IsResourceRequest {
			api.ServeHTTP(w, req)
			return
		}
		refuse(w, req, codecs, "the server has not yet read from etcd whether its data were restored from a snapshot")
	})
}

// refuse answers a request with status 503, which clients repeat.
func refuse(w http.ResponseWriter, req *http.Request, codecs runtime.NegotiatedSerializer, reason string) {
	err := apierrors.NewServiceUnavailable(reason)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(restoredPause / time.Second)}
	responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{Version: "v1"}, w, req)
}

// checkData records the versions in which this server stores objects, and marks the ManagedClusters of restored data. It
// returns an IncompatibleError if the server cannot read the data. Without a connection to etcd or to the hub, it continues
// in the background, and cancel stops the server.
func (s *Server) checkData(ctx context.Context, cancel context.CancelCauseFunc) error {
	var incompatible *etcd.IncompatibleError
	err := s.tryCheckData(ctx)
	if err == nil || errors.As(err, &incompatible) {
		return err
	}
	klog.FromContext(ctx).Error(err, "Failed to check the data in etcd; objects are not served until then")
	s.running.Go(func() {
		err := wait.PollUntilContextCancel(ctx, restoredPause, false, func(ctx context.Context) (bool, error) {
			err := s.tryCheckData(ctx)
			if errors.As(err, &incompatible) {
				return false, err
			}
			if err != nil {
				klog.FromContext(ctx).V(1).Info("Failed to check the data in etcd", "err", err)
			}
			return err == nil, nil
		})
		if errors.As(err, &incompatible) {
			cancel(err)
		}
	})
	return nil
}

func (s *Server) tryCheckData(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stampTimeout)
	defer cancel()
	readCtx, cancelRead := context.WithTimeout(ctx, markTimeout)
	defer cancelRead()
	if err := s.etcd.RecordVersions(readCtx, s.stored); err != nil {
		return err
	}
	mark, err := s.etcd.ReadMarks(readCtx)
	if err != nil {
		return fmt.Errorf("reading the last restore: %w", err)
	}
	if mark != nil {
		stamp := s.stampClusters
		if s.clients.clusters != s.clients.own {
			stamp = s.stampHubClusters
		}
		if err := stamp(ctx, mark); err != nil {
			return fmt.Errorf("marking the ManagedClusters of the restore %s: %w", mark.ID, err)
		}
		s.restored.restore.Store(&mark.ID)
	}
	s.restored.known.Store(true)
	return nil
}

// stampClusters marks all stored ManagedClusters that are not marked yet.
func (s *Server) stampClusters(ctx context.Context, mark *etcd.Mark) error {
	store, destroy, err := s.clusterStore()
	if err != nil {
		return err
	}
	defer destroy()
	withdrawn := sync.OnceValues(func() (func(string) bool, error) { return s.withdrawn(ctx) })
	stamped, denied := 0, 0
	options := storage.ListOptions{Recursive: true, Predicate: storage.Everything}
	options.Predicate.Limit = clusterPage
	for {
		var page cluster.ManagedClusterList
		if err := store.GetList(ctx, clustersPrefix, options, &page); err != nil {
			return err
		}
		for _, c := range page.Items {
			if c.Annotations[clusterv1.RestoredAnnotation] == mark.ID {
				continue
			}
			withdrawn, err := withdrawn()
			if err != nil {
				return err
			}
			accepted, err := stampCluster(ctx, store, c.Name, mark.ID, withdrawn)
			if storage.IsNotFound(err) {
				// A replica that serves has finished a deletion that the snapshot contains.
				continue
			}
			if err != nil {
				return err
			}
			stamped++
			if c.Spec.HubAcceptsClient && !accepted {
				denied++
				klog.FromContext(ctx).Info("Denied a ManagedCluster of the restored data, because the hub has withdrawn its access", "cluster", c.Name)
			}
		}
		if options.Predicate.Continue = page.Continue; page.Continue == "" {
			break
		}
	}
	if stamped > 0 {
		klog.FromContext(ctx).Info("The data were restored from a snapshot; agents keep objects that it does not contain until the restore is confirmed",
			"restore", mark.ID, "time", mark.Time, "clusters", stamped, "denied", denied)
	}
	return nil
}

// stampHubClusters marks the ManagedClusters that the hub stores in a CustomResourceDefinition. Their data were not
// restored, but the accounts of the clusters were.
func (s *Server) stampHubClusters(ctx context.Context, mark *etcd.Mark) error {
	clusters, stamped := s.clients.clusters.ClusterV1().ManagedClusters(), 0
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{clusterv1.RestoredAnnotation: mark.ID}}})
	if err != nil {
		return err
	}
	err = pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return clusters.List(ctx, options)
	}).EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		c, ok := obj.(*clusterv1.ManagedCluster)
		if !ok || c.Annotations[clusterv1.RestoredAnnotation] == mark.ID {
			return nil
		}
		_, err := clusters.Patch(ctx, c.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		stamped++
		return err
	})
	if err == nil && stamped > 0 {
		klog.FromContext(ctx).Info("The data were restored from a snapshot; agents keep accounts that it does not contain until the restore is confirmed",
			"restore", mark.ID, "time", mark.Time, "clusters", stamped)
	}
	return err
}

func stampCluster(ctx context.Context, store storage.Interface, name, restore string, withdrawn func(string) bool) (accepted bool, err error) {
	stored := &cluster.ManagedCluster{}
	err = store.GuaranteedUpdate(ctx, clustersPrefix+name, stored, false, nil, storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
		c, ok := obj.(*cluster.ManagedCluster)
		if !ok {
			return nil, fmt.Errorf("unexpected type %T in the store of ManagedClusters", obj)
		}
		managedcluster.StampRestored(ctx, c, restore, withdrawn(name))
		return c, nil
	}), nil)
	return stored.Spec.HubAcceptsClient, err
}

// withdrawn returns a function that reports whether the hub has withdrawn the access of a cluster that the
// snapshot contains as accepted. On a hub on which this server has never run, no cluster has access yet.
func (s *Server) withdrawn(ctx context.Context) (func(string) bool, error) {
	lease := s.extra.LeaderElection
	_, err := s.hub.CoordinationV1().Leases(lease.ResourceNamespace).Get(ctx, lease.ResourceName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return func(string) bool { return false }, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the Lease %s of the hub: %w", lease.ResourceName, err)
	}
	return registration.Withdrawn(ctx, s.hub)
}
