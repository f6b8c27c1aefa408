package ingest

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// managed contains ManagedClusters by name.
type managed struct {
	mu       sync.Mutex
	clusters map[string]*clusterv1.ManagedCluster
}

func (m *managed) get(name string) *clusterv1.ManagedCluster {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.clusters[name]
}

func (m *managed) set(name string, cluster *clusterv1.ManagedCluster) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clusters[name] = cluster
}

func managedCluster(name, env string) *clusterv1.ManagedCluster {
	return &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"env": env, addonLabel + "search-collector": "available"}},
		Spec:       clusterv1.ManagedClusterSpec{ManagedClusterClientConfigs: []clusterv1.ClientConfig{{URL: "https://" + name}}},
		Status: clusterv1.ManagedClusterStatus{
			Capacity:      clusterv1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi")},
			Version:       clusterv1.ManagedClusterVersion{Kubernetes: "v1.36.3"},
			ClusterClaims: []clusterv1.ManagedClusterClaim{{Name: consoleClaim, Value: "https://console." + name}},
			Conditions: []metav1.Condition{
				{Type: "ManagedClusterConditionAvailable", Status: metav1.ConditionTrue},
				{Type: "name", Status: metav1.ConditionTrue},
				{Type: "not a property", Status: metav1.ConditionTrue},
			},
		},
	}
}

// withManagedCluster starts a server whose cluster c1 has a ManagedCluster.
func withManagedCluster(t *testing.T) (*server, *managed) {
	t.Helper()
	m := &managed{clusters: map[string]*clusterv1.ManagedCluster{"c1": managedCluster("c1", "prod")}}
	return serve(t, Config{Cluster: m.get}), m
}

func (s *server) update(t *testing.T, cluster string) {
	t.Helper()
	if err := s.handler.UpdateCluster(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
}

// clustersWith returns the UIDs of the resources of kind Cluster with a label.
func (s *server) clustersWith(t *testing.T, filter string) []string {
	t.Helper()
	q, err := query.Parse("kind:Cluster " + filter)
	if err != nil {
		t.Fatal(err)
	}
	result, err := s.engine.Search(t.Context(), visibility.Everything(), &search.Request{Query: q, Items: true, Limit: -1})
	if err != nil {
		t.Fatal(err)
	}
	var uids []string
	for i := range result.Items {
		uids = append(uids, result.Items[i].UID)
	}
	return uids
}

func (s *server) wantClusters(t *testing.T, filter string, want ...string) {
	t.Helper()
	if got := s.clustersWith(t, filter); !slices.Equal(got, want) {
		t.Errorf("resources of kind Cluster with %s = %v, want %v", filter, got, want)
	}
}

func TestClusterThatNeverReported(t *testing.T) {
	s, m := withManagedCluster(t)
	s.update(t, "c1")
	item, err := search.Get(t.Context(), s.engine, visibility.Everything(), "cluster__c1")
	if err != nil || item == nil {
		t.Fatalf("Get(cluster__c1) = %v, %v, want a resource of kind Cluster", item, err)
	}
	want := `{"ManagedClusterConditionAvailable":"True","addon":{"search-collector":"true"},"apiEndpoint":"https://c1",` +
		`"apigroup":"cluster.open-cluster-management.io","apiversion":"v1","consoleURL":"https://console.c1","cpu":4,"created":"0001-01-01T00:00:00Z",` +
		`"kind":"Cluster","kind_plural":"managedclusters","kubernetesVersion":"v1.36.3",` +
		`"label":{"env":"prod","feature.open-cluster-management.io/addon-search-collector":"available"},"memory":8589934592,"name":"c1"}`
	if got := string(item.JSON()); got != want {
		t.Errorf("properties of c1 = %s, want %s", got, want)
	}
	states, err := s.handler.States(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(states, func(state State) bool { return state.Name == "c1" })
	if got, want := states[at], (State{Name: "c1", Absent: true}); got != want {
		t.Errorf("state of c1 = %+v, want %+v", got, want)
	}

	m.set("c1", managedCluster("c1", "test"))
	s.update(t, "c1")
	s.wantClusters(t, "label:env=test", "cluster__c1")
	s.wantClusters(t, "label:env=prod")
	// The resource is removed with the others of the cluster. An update must not create the cluster again.
	m.set("c1", nil)
	s.fleet.set()
	if err := s.handler.removeMissing(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.update(t, "c1")
	s.wantClusters(t, "")
	if remembers(t, s, "c1") {
		t.Error("the engine contains c1, want no cluster after its removal")
	}
}

// TestClusterIsNotPartOfReports checks that reports of public collectors, which contain no resource of
// kind Cluster, neither remove it nor count it.
func TestClusterIsNotPartOfReports(t *testing.T) {
	s, _ := withManagedCluster(t)
	node := func(name string) string {
		return fmt.Sprintf(`{"uid":"c1/%s","kind":"Node","properties":{"name":%q}}`, name, name)
	}
	wantTotal := func(a answer, want int) {
		t.Helper()
		if got, _ := a.totals(t); got != want {
			t.Errorf("TotalResources = %d, want %d", got, want)
		}
	}
	for _, test := range []struct {
		name, body string
		total      int
		found      string
	}{
		{"first full report", full("c1", "a", "b"), 2, "name:c1"},
		{"heartbeat", `{}`, 2, "name:c1"},
		{"full report with a Node", `{"clearAll":true,"addResources":[` + pod("c1", "a") + `,` + node("n") + `]}`, 2, "nodes:1"},
		{"report of the cluster itself", `{"addResources":[{"uid":"cluster__c1","kind":"Cluster","properties":{"name":"c1","nodes":7}}]}`, 2, "nodes:1"},
		{"deletion of the cluster itself", `{"deleteResources":[{"uid":"cluster__c1"}]}`, 2, "nodes:1"},
		{"empty full report", `{"clearAll":true}`, 0, "name:c1"},
	} {
		wantTotal(s.post(t, "c1", test.body), test.total)
		if got := s.clustersWith(t, test.found); !slices.Equal(got, []string{"cluster__c1"}) {
			t.Errorf("%s: resources of kind Cluster with %s = %v, want cluster__c1", test.name, test.found, got)
		}
	}
	// A new process does not know the stored resources of kind Cluster.
	s.handler.resources.Clear()
	wantTotal(s.post(t, "c1", `{"addResources":[`+pod("c1", "a")+`]}`), 1)
	s.wantClusters(t, "", "cluster__c1")
	// The cluster c2 has no ManagedCluster that describes it.
	wantTotal(s.post(t, "c2", full("c2", "a")), 1)
	s.wantClusters(t, "", "cluster__c1")
}

// TestFullReportKeepsCluster checks that a full report does not replace a resource of kind Cluster that another
// server, or another goroutine of this one, has just stored.
func TestFullReportKeepsCluster(t *testing.T) {
	s, _ := withManagedCluster(t)
	s.post(t, "c1", full("c1", "a"))
	properties, err := query.DecodeProperties([]byte(`{"kind":"Cluster","name":"c1","label":{"env":"newer"}}`))
	if err != nil {
		t.Fatal(err)
	}
	newer := &search.Report{Cluster: "c1", Put: []search.Resource{{UID: "cluster__c1", Properties: properties}}}
	if _, err := s.engine.Apply(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	s.post(t, "c1", full("c1", "a", "b"))
	s.wantClusters(t, "label:env=newer", "cluster__c1")
}

func TestClusterPropertiesAreBounded(t *testing.T) {
	cluster := managedCluster("c1", "prod")
	for i := range 1000 {
		cluster.Status.Conditions = append(cluster.Status.Conditions, metav1.Condition{Type: fmt.Sprintf("Type%d", i), Status: metav1.ConditionTrue})
	}
	properties, err := clusterProperties(cluster, 0, false, Limits{}.withDefaults())
	if err != nil || len(properties) > 2*maxConditions {
		t.Errorf("clusterProperties(1000 conditions) = %d properties, %v, want at most %d", len(properties), err, 2*maxConditions)
	}
	ofHub, err := clusterProperties(cluster, 0, true, Limits{}.withDefaults())
	if err != nil || !reflect.DeepEqual(search.Text(ofHub, query.HubResource), "true") {
		t.Errorf("%s of the hub = %q, %v, want true", query.HubResource, search.Text(ofHub, query.HubResource), err)
	}
	for i := range 2000 {
		cluster.Labels[fmt.Sprintf("label-%060d", i)] = string(corev1.ConditionTrue)
	}
	if _, err := clusterProperties(cluster, 0, false, Limits{}.withDefaults()); err == nil {
		t.Error("clusterProperties(140 KB of labels) = nil error, want one that names the limit")
	}
}
