package managedcluster_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	restclient "k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"
	testingclock "k8s.io/utils/clock/testing"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver/etcd"
	"open-cluster-management.io/hub-apiserver/pkg/authz/acceptance"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/pkg/registration/csr"
	"open-cluster-management.io/hub-apiserver/pkg/registry/cluster/managedcluster"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	registrations "open-cluster-management.io/hub-apiserver/pkg/registry/register/managedcluster"
)

const (
	hubARN  = "arn:aws:eks:us-west-2:123456789012:cluster/hub"
	bootARN = "arn:aws:eks:us-west-2:567890123456:cluster/spoke"
)

// hub is a server of ManagedClusters and their registrations, on a real etcd.
type hub struct {
	*apiserver.RegistrationDependencies
	url   string
	clock *testingclock.FakePassiveClock

	mu sync.Mutex
	// refuse is what the authorizer does not let a user do, as "user verb resource".
	grants  map[string][]string
	revoked []string
}

// Revoke implements registration.Revoker.
func (h *hub) Revoke(_ context.Context, cluster string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.revoked = append(h.revoked, cluster)
	return nil
}

func (h *hub) takeRevoked() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.revoked
	h.revoked = nil
	return out
}

// ApprovePending implements registration.Approver.
func (h *hub) ApprovePending(_ context.Context, cluster string) ([]string, error) {
	return []string{cluster + "-request"}, nil
}

// authorize lets administrators do everything, and others what they were granted.
func (h *hub) authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if slices.Contains(a.GetUser().GetGroups(), user.SystemPrivilegedGroup) {
		return authorizer.DecisionAllow, "", nil
	}
	resource := a.GetResource()
	if a.GetSubresource() != "" {
		resource += "/" + a.GetSubresource()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, rule := range h.grants[a.GetUser().GetName()] {
		fields := strings.Fields(rule)
		group, _, _ := strings.Cut(a.GetAPIGroup(), ".")
		if fields[0] == a.GetVerb() && fields[1] == group+":"+resource && (len(fields) < 3 || fields[2] == a.GetName()) {
			return authorizer.DecisionAllow, "", nil
		}
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func (h *hub) grant(name string, rules ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.grants[name] = append(h.grants[name], rules...)
}

// needsClaim is a driver of clusters that have claimed an ARN. What it would make is
// not what these tests are about.
type needsClaim struct{}

func (needsClaim) Name() registerv1alpha1.RegistrationDriver { return registerv1alpha1.DriverAWSIRSA }

func (needsClaim) Groups(r *registerv1alpha1.ManagedClusterRegistration) []string {
	return clusterv1.AgentGroups(r.Name)[1:]
}

func (needsClaim) Rules(*registerv1alpha1.ManagedClusterRegistration) []rbacv1.PolicyRule { return nil }

func (needsClaim) Refuses(r *registerv1alpha1.ManagedClusterRegistration) string {
	if r.Spec.IRSA == nil {
		return "the cluster has claimed no ARN"
	}
	return ""
}

func (needsClaim) Provision(context.Context, *registerv1alpha1.ManagedClusterRegistration, bool) error {
	return nil
}

func (needsClaim) Revoke(context.Context, *registerv1alpha1.ManagedClusterRegistration) error {
	return nil
}

type etcdOptions struct {
	endpoint string
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (e etcdOptions) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	config := storagebackend.NewDefaultConfig("/registry", nil)
	config.Transport.ServerList = []string{e.endpoint}
	return generic.RESTOptions{
		StorageConfig: config.ForResource(resource), Decorator: generic.UndecoratedStorage,
		EnableGarbageCollection: true, DeleteCollectionWorkers: 1, ResourcePrefix: resource.Group + "/" + resource.Resource,
	}, nil
}

// startHub starts a hub with the drivers; csr and aws-irsa without any.
func startHub(t *testing.T, drivers ...registration.Driver) *hub {
	t.Helper()
	database, err := etcd.Start(t.Context(), etcd.Options{DataDir: t.TempDir(), QuotaBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(database.Stop)

	h := &hub{grants: map[string][]string{}, clock: testingclock.NewFakePassiveClock(metav1.Now().Time)}
	decisions := managedcluster.NewDecisions()
	records := registrations.NewRecordsWithClock(decisions, h.clock)
	options := registration.RegistrarOptions{
		Drivers: drivers, Records: records, Clusters: decisions, Decisions: decisions, Revoker: h, Approver: h,
		MayDecide: func(ctx context.Context, cluster string) error {
			return acceptance.Check(ctx, authorizer.AuthorizerFunc(h.authorize), cluster)
		},
	}
	if len(drivers) == 0 {
		options.Drivers = []registration.Driver{csr.Driver{}, needsClaim{}}
	}
	for _, driver := range options.Drivers {
		if driver.Name() == registerv1alpha1.DriverAWSIRSA {
			arn, err := irsa.ParseARN(hubARN)
			if err != nil {
				t.Fatal(err)
			}
			options.HubARN = &arn
		}
	}
	h.RegistrationDependencies = &apiserver.RegistrationDependencies{
		Registrar: registration.NewRegistrar(options), Records: records, Decisions: decisions,
	}
	h.serve(t, etcdOptions{database.Endpoint()})
	return h
}

func (h *hub) serve(t *testing.T, getter generic.RESTOptionsGetter) {
	t.Helper()
	recommended := genericapiserver.NewRecommendedConfig(scheme.Codecs)
	apiserver.DescribeAPI(recommended)
	config := &recommended.Config
	config.ExternalAddress, config.PublicAddress = "127.0.0.1:443", net.IPv4(127, 0, 0, 1)
	config.LoopbackClientConfig = &restclient.Config{}
	config.EffectiveVersion = basecompatibility.NewEffectiveVersionFromString("1.0", "", "")
	config.Authorization.Authorizer = authorizer.AuthorizerFunc(h.authorize)
	config.Authentication.Authenticator = authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		groups := append(slices.Clone(r.Header["X-Group"]), user.AllAuthenticated)
		return &authenticator.Response{User: &user.DefaultInfo{Name: r.Header.Get("X-User"), Groups: groups}}, true, nil
	})
	server, err := config.Complete(nil).New("test", genericapiserver.NewEmptyDelegate())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Destroy)

	groups := map[schema.GroupVersion]map[string]rest.Storage{}
	for _, row := range apiserver.Resources(apiserver.Dependencies{Authorizer: authorizer.AuthorizerFunc(h.authorize), Registration: h.RegistrationDependencies}) {
		if !slices.Contains([]string{clusterv1.SchemeGroupVersion.Group, registerv1alpha1.GroupName}, row.Group()) || row.Name != "managedclusters" {
			continue
		}
		h.install(t, row, getter, groups)
	}
	for version, storages := range groups {
		info := genericapiserver.NewDefaultAPIGroupInfo(version.Group, scheme.Scheme, scheme.ParameterCodec, scheme.Codecs)
		info.PrioritizedVersions = []schema.GroupVersion{version}
		info.VersionedResourcesStorageMap[version.Version] = storages
		if err := server.InstallAPIGroup(&info); err != nil {
			t.Fatal(err)
		}
	}
	listener := httptest.NewServer(server.Handler)
	t.Cleanup(listener.Close)
	h.url = listener.URL
}

func (h *hub) install(t *testing.T, row definition.Resource, getter generic.RESTOptionsGetter, groups map[schema.GroupVersion]map[string]rest.Storage) {
	t.Helper()
	served, err := row.Storages(scheme.Scheme, scheme.Codecs, getter)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(groups, served)
}

// as is a client of a user.
func (h *hub) as(t *testing.T, name string, groups ...string) *versioned.Clientset {
	t.Helper()
	client, err := versioned.NewForConfig(h.config(name, groups...))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (h *hub) config(name string, groups ...string) *restclient.Config {
	return &restclient.Config{Host: h.url, QPS: -1, WrapTransport: func(next http.RoundTripper) http.RoundTripper {
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

// admin is a client of somebody who may do everything.
func (h *hub) admin(t *testing.T) *versioned.Clientset {
	return h.as(t, "admin", user.SystemPrivilegedGroup)
}

// bootstrap is a client of the user that agents have before they are registered.
func (h *hub) bootstrap(t *testing.T) *versioned.Clientset {
	t.Helper()
	h.grant("bootstrap", "get cluster:managedclusters", "create cluster:managedclusters", "create cluster:managedclustersets/join",
		"create register:managedclusters/irsa", "get register:managedclusters/irsa")
	return h.as(t, "bootstrap", "system:bootstrappers:managedcluster")
}

// agent is a client of an agent of a cluster, with what OCM grants it on its own ManagedCluster.
func (h *hub) agent(t *testing.T, cluster string) *versioned.Clientset {
	t.Helper()
	name := fmt.Sprintf("system:open-cluster-management:%s:agent1", cluster)
	for _, verb := range []string{"get", "update", "patch"} {
		h.grant(name, verb+" cluster:managedclusters "+cluster, verb+" cluster:managedclusters/status "+cluster)
	}
	return h.as(t, name, clusterv1.AgentGroups(cluster)[0])
}

func newCluster(name string, annotations ...string) *clusterv1.ManagedCluster {
	mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	for i := 0; i+1 < len(annotations); i += 2 {
		mc.Annotations[annotations[i]] = annotations[i+1]
	}
	return mc
}
