package managedclusterregistration_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver"
	"open-cluster-management.io/hub-apiserver/pkg/authz/acceptance"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/pkg/registration/csr"
	"open-cluster-management.io/hub-apiserver/pkg/registration/denial"
	"open-cluster-management.io/hub-apiserver/pkg/registry/cluster/managedcluster"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	registrations "open-cluster-management.io/hub-apiserver/pkg/registry/register/managedclusterregistration"
	"open-cluster-management.io/hub-apiserver/test/registrytest"
)

const (
	hubARN  = "arn:aws:eks:us-west-2:123456789012:cluster/hub"
	bootARN = "arn:aws:eks:us-west-2:567890123456:cluster/spoke"
)

// hub serves ManagedClusters and their registrations.
type hub struct {
	*apiserver.RegistrationDependencies
	server registrytest.Server
	clock  *testingclock.FakePassiveClock
	// stores are the stores of the kinds that are imported.
	stores map[string]*definition.REST

	mu sync.Mutex
	// grants are rules "verb group:resource [name]" by user.
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

// authorize allows all requests of administrators, and the granted requests of other users.
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

// needsClaim is a driver for clusters that have claimed an ARN. It provisions no resources.
type needsClaim struct{}

func (needsClaim) Name() registerv1alpha1.RegistrationDriver { return registerv1alpha1.DriverAWSIRSA }

func (needsClaim) Groups(r *registerv1alpha1.ManagedClusterRegistration) []string {
	return clusterv1.AgentGroups(r.Name)[1:]
}

func (needsClaim) Rules(*registerv1alpha1.ManagedClusterRegistration) []rbacv1.PolicyRule { return nil }

func (needsClaim) Check(context.Context) ([]string, error) { return nil, nil }

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

// startHub starts a hub with drivers. The default is csr and aws-irsa.
func startHub(t *testing.T, drivers ...registration.Driver) *hub {
	t.Helper()
	h := &hub{grants: map[string][]string{}, clock: testingclock.NewFakePassiveClock(metav1.Now().Time)}
	decisions := &managedcluster.Decisions{}
	records := registrations.NewRecords(decisions, h.clock)
	options := &registration.Registrar{
		Drivers: drivers, Records: records, Clusters: decisions, Decisions: decisions, Revoker: h, Approver: h,
		Gate: denial.New(h.clock), Clock: clock.RealClock{}, HubProblems: registration.NewHubCheck(nil).Problems,
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
		Registrar: options, Records: records, Decisions: decisions,
	}
	authz := authorizer.AuthorizerFunc(h.authorize)
	rows := slices.DeleteFunc(apiserver.Resources(apiserver.Dependencies{Authorizer: authz, Registration: h.RegistrationDependencies}),
		func(row definition.Resource) bool { return row.Name != "managedclusters" })
	h.stores = map[string]*definition.REST{}
	for i := range rows {
		row := &rows[i]
		if row.Strategy == nil {
			continue
		}
		receive := row.Stores[row.Name]
		row.Stores = maps.Clone(row.Stores)
		if row.Stores == nil {
			row.Stores = map[string]func(*definition.REST){}
		}
		row.Stores[row.Name] = func(store *definition.REST) {
			h.stores[row.Kind] = store
			if receive != nil {
				receive(store)
			}
		}
	}
	h.server = registrytest.StartDatabase(t).Serve(t, authz, rows...)
	return h
}

// as returns a client of a user.
func (h *hub) as(t *testing.T, name string, groups ...string) *versioned.Clientset {
	t.Helper()
	return h.server.As(t, name, groups...)
}

// admin returns a client of an administrator.
func (h *hub) admin(t *testing.T) *versioned.Clientset {
	return h.as(t, "admin", user.SystemPrivilegedGroup)
}

// bootstrap returns a client of the user of agents that are not registered yet.
func (h *hub) bootstrap(t *testing.T) *versioned.Clientset {
	t.Helper()
	h.grant("bootstrap", "get cluster:managedclusters", "create cluster:managedclusters", "create cluster:managedclustersets/join",
		"create register:managedclusters/irsa", "get register:managedclusters/irsa")
	return h.as(t, "bootstrap", "system:bootstrappers:managedcluster")
}

// agent returns a client of the agent of a cluster, with the permissions that OCM grants it on its own ManagedCluster.
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
