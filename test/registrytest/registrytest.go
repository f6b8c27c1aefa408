// Package registrytest serves rows of the resource table over HTTP. The storage is an embedded etcd
// in the process of the test. Use it to test storage and responses of a row without a hub.
package registrytest

import (
	"context"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/dynamic"
	restclient "k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"

	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver/etcd"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/test/await"
)

const storagePrefix = "/registry"

// Database is an embedded etcd. Servers that share a Database serve the same objects.
type Database struct {
	endpoint string
}

// StartDatabase starts an etcd that stops when the test ends.
func StartDatabase(t testing.TB) Database {
	t.Helper()
	server, err := etcd.Start(t.Context(), etcd.Options{DataDir: t.TempDir(), QuotaBytes: 512 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	return Database{server.Endpoint()}
}

// Put stores an object as a server has stored it before. The key begins with the group and the
// resource.
func (d Database) Put(t testing.TB, key string, value []byte) {
	t.Helper()
	client := d.Client(t)
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	if _, err := client.Put(ctx, storagePrefix+"/"+key, string(value)); err != nil {
		t.Fatal(err)
	}
}

// Get returns what is stored for a key, or fails the test. The key begins with the group and the
// resource.
func (d Database) Get(t testing.TB, key string) *mvccpb.KeyValue {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	stored, err := d.Client(t).Get(ctx, storagePrefix+"/"+key)
	if err != nil {
		t.Fatal(err)
	}
	if len(stored.Kvs) != 1 {
		t.Fatalf("number of values of %s = %d, want 1", key, len(stored.Kvs))
	}
	return stored.Kvs[0]
}

// Client returns a client of etcd that is closed when the test ends.
func (d Database) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{d.endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (d Database) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	config := storagebackend.NewDefaultConfig(storagePrefix, nil)
	config.Transport.ServerList = []string{d.endpoint}
	return generic.RESTOptions{
		StorageConfig: config.ForResource(resource), Decorator: genericregistry.StorageWithCacher(),
		EnableGarbageCollection: true, DeleteCollectionWorkers: 1, ResourcePrefix: resource.Group + "/" + resource.Resource,
	}, nil
}

// Server serves rows of the resource table.
type Server struct {
	url string
}

// Serve serves rows until the test ends. authz authorizes each request. If authz is nil, all
// requests are allowed.
func (d Database) Serve(t *testing.T, authz authorizer.Authorizer, rows ...definition.Resource) Server {
	t.Helper()
	if authz == nil {
		authz = authorizer.AuthorizerFunc(AllowAll)
	}
	recommended := genericapiserver.NewRecommendedConfig(scheme.Codecs)
	apiserver.DescribeAPI(recommended)
	config := &recommended.Config
	config.ExternalAddress, config.PublicAddress = "127.0.0.1:443", net.IPv4(127, 0, 0, 1)
	config.LoopbackClientConfig = &restclient.Config{}
	config.EffectiveVersion = basecompatibility.NewEffectiveVersionFromString("1.0", "", "")
	config.Authorization.Authorizer = authz
	config.Authentication.Authenticator = authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		groups := append(slices.Clone(r.Header["X-Group"]), user.AllAuthenticated)
		return &authenticator.Response{User: &user.DefaultInfo{Name: r.Header.Get("X-User"), Groups: groups}}, true, nil
	})
	server, err := config.Complete(nil).New("test", genericapiserver.NewEmptyDelegate())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Destroy)

	storages := map[schema.GroupVersion]map[string]rest.Storage{}
	for _, row := range rows {
		served, err := row.Storages(scheme.Scheme, scheme.Codecs, d)
		if err != nil {
			t.Fatal(err)
		}
		for version, paths := range served {
			if storages[version] == nil {
				storages[version] = map[string]rest.Storage{}
			}
			maps.Copy(storages[version], paths)
		}
		if row.Counter != nil {
			go row.Counter.Run(t.Context())
		}
	}
	groups := map[string]*genericapiserver.APIGroupInfo{}
	for version, paths := range storages {
		group := groups[version.Group]
		if group == nil {
			info := genericapiserver.NewDefaultAPIGroupInfo(version.Group, scheme.Scheme, scheme.ParameterCodec, scheme.Codecs)
			info.PrioritizedVersions = nil
			group = &info
			groups[version.Group] = group
		}
		group.PrioritizedVersions = append(group.PrioritizedVersions, version)
		group.VersionedResourcesStorageMap[version.Version] = paths
	}
	for _, group := range groups {
		if err := server.InstallAPIGroup(group); err != nil {
			t.Fatal(err)
		}
	}
	listener := httptest.NewServer(server.Handler)
	t.Cleanup(listener.Close)
	return Server{listener.URL}
}

// AllowAll is an authorizer.AuthorizerFunc that allows every request.
func AllowAll(_ context.Context, _ authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

// URL returns the base URL of the server.
func (s Server) URL() string { return s.url }

// Config returns the configuration of a client that is authenticated as a user.
func (s Server) Config(name string, groups ...string) *restclient.Config {
	return &restclient.Config{Host: s.url, QPS: -1, WrapTransport: func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.Header.Set("X-User", name)
			r.Header["X-Group"] = groups
			return next.RoundTrip(r)
		})
	}}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// As returns a typed client that is authenticated as a user.
func (s Server) As(t *testing.T, name string, groups ...string) *versioned.Clientset {
	t.Helper()
	client, err := versioned.NewForConfig(s.Config(name, groups...))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Dynamic returns a dynamic client that is authenticated as a user.
func (s Server) Dynamic(t *testing.T, name string, groups ...string) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(s.Config(name, groups...))
	if err != nil {
		t.Fatal(err)
	}
	return client
}
