package options

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/registry/generic"
	genericoptions "k8s.io/apiserver/pkg/server/options"

	"open-cluster-management.io/hub-apiserver/pkg/apiserver"
)

// overriddenEtcd applies --etcd-servers-overrides, which the storage factory of the library ignores.
type overriddenEtcd struct {
	generic.RESTOptionsGetter
	servers map[schema.GroupResource][]string
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (o overriddenEtcd) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := o.RESTOptionsGetter.GetRESTOptions(resource, example)
	if servers, overridden := o.servers[resource]; overridden && err == nil {
		options.StorageConfig.Transport.ServerList = servers
	}
	return options, err
}

// etcdOverrides returns the servers of --etcd-servers-overrides, or an error for names that the server does not store, because
// these would have no effect.
func (c Completed) etcdOverrides() (map[schema.GroupResource][]string, error) {
	overrides, err := genericoptions.ParseEtcdServersOverrides(c.Recommended.Etcd.EtcdServersOverrides)
	if err != nil {
		return nil, err
	}
	stored := sets.New[schema.GroupResource]()
	for _, row := range apiserver.Resources(apiserver.Dependencies{}) {
		stored.Insert(row.InStorage()...)
	}
	servers := map[schema.GroupResource][]string{}
	var errs []error
	for _, override := range overrides {
		if name := override.GroupResource; !stored.Has(name) {
			errs = append(errs, fmt.Errorf("--etcd-servers-overrides: %s/%s: Not found: the server stores no such resource", name.Group, name.Resource))
		}
		servers[override.GroupResource] = override.Servers
	}
	return servers, errors.Join(errs...)
}
