package apiserver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver/etcd"
	"open-cluster-management.io/hub-apiserver/pkg/quota"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/pkg/storagemigration"
)

// StorageMigration returns the configuration that migrates the objects of rows. It includes rows that
// the server does not serve, because a later release may serve them.
func StorageMigration(rows []definition.Resource, getter generic.RESTOptionsGetter) (storagemigration.Config, error) {
	config := storagemigration.Config{Size: func(obj runtime.Object) int64 { return quota.Size(obj) }}
	// No resource has an empty name, so these are the options without --etcd-servers-overrides.
	common, err := getter.GetRESTOptions(schema.GroupResource{}, nil)
	if err != nil {
		return config, fmt.Errorf("storage: %w", err)
	}
	config.Transport, config.Prefix = common.StorageConfig.Transport, common.StorageConfig.Prefix
	for _, row := range rows {
		for _, name := range row.InStorage() {
			options, err := getter.GetRESTOptions(name, row.New())
			if err != nil {
				return config, fmt.Errorf("storage of %s: %w", name, err)
			}
			var servers []string
			if of := options.StorageConfig.Transport.ServerList; !slices.Equal(of, config.Transport.ServerList) {
				servers = of
			}
			config.Resources = append(config.Resources, storagemigration.Resource{
				Name: name.String(), Prefix: "/" + options.ResourcePrefix + "/", Servers: servers,
				Stored: row.StoredForm(), Readable: row.ReadableForms(scheme.Scheme), New: row.New,
				Open: func() (storage.Interface, func(), error) {
					store, destroy, err := row.OpenStorage(scheme.Codecs, getter, name)
					return store, destroy, err
				},
			})
		}
	}
	return config, nil
}

// migrator returns the migrator of the server.
func (c CompletedConfig) migrator(table []definition.Resource) (*storagemigration.Migrator, error) {
	config, err := StorageMigration(table, c.generic.RESTOptionsGetter)
	if err != nil {
		return nil, err
	}
	// No other process can use an embedded etcd.
	if c.extra.Embedded == nil {
		config.Replica = c.extra.Identity
	}
	return storagemigration.New(config)
}

// enterStorage records the versions that this server stores, and returns a function to call after the
// server has stopped writing. Without a connection to etcd, the server records them later. cancel stops
// the server if it must not use the data.
func (s *Server) enterStorage(ctx context.Context, cancel context.CancelCauseFunc) (func(), error) {
	var incompatible *storagemigration.IncompatibleError
	if err := s.migrator.Enter(ctx); errors.As(err, &incompatible) {
		return nil, err
	} else if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to record the versions of stored objects; retrying")
	}
	ctx, leave := context.WithCancel(context.WithoutCancel(ctx))
	s.running.Go(func() {
		if err := s.migrator.Keep(ctx); err != nil {
			cancel(err)
		}
	})
	return leave, nil
}

// checkEtcdVersions returns an error if a member of an etcd cluster is too old. It does not wait for members that do
// not respond: cancel stops the server if one of them turns out to be too old.
func (s *Server) checkEtcdVersions(ctx context.Context, cancel context.CancelCauseFunc) error {
	for _, cluster := range s.migrator.Clients() {
		silent, err := etcd.CheckVersions(ctx, cluster, cluster.Endpoints())
		if err != nil {
			return err
		}
		if len(silent) == 0 {
			continue
		}
		s.running.Go(func() {
			if err := etcd.AwaitVersions(ctx, cluster, silent); err != nil {
				cancel(err)
			}
		})
	}
	return nil
}

// watchEtcd makes the stores use the members of etcd that respond, until ctx ends. Without etcd, watches would look as
// if nothing changed, although other replicas may reach it.
func (s *Server) watchEtcd(ctx context.Context, members map[string]*clientv3.Client) {
	s.extra.EtcdFailover.Run(ctx, s.migrator.Clusters(), members, s.watches.End)
	closeMembers(ctx, members)
}

func closeMembers(ctx context.Context, members map[string]*clientv3.Client) {
	for _, client := range members {
		if err := client.Close(); err != nil && !errors.Is(err, context.Canceled) {
			klog.FromContext(ctx).Error(err, "Failed to close the connection to a member of etcd")
		}
	}
}

func (s *Server) closeMigrator() {
	if err := s.migrator.Close(); err != nil && !errors.Is(err, context.Canceled) {
		klog.Background().Error(err, "Failed to close the connection to etcd")
	}
}
