package doctor

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	ocmfake "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/fake"
)

func TestSkewOfOneMinorReleaseIsSupported(t *testing.T) {
	const own = "v0.5.0"
	for other, want := range map[string]string{
		own:                                  cli.StateOK,
		"v0.5.3":                             cli.StateOK,
		"v0.4.1":                             cli.StateOK,
		"v0.6.0":                             cli.StateOK,
		"v0.3.9":                             cli.StateBad,
		"v0.7.0":                             cli.StateBad,
		"v1.5.0":                             cli.StateBad,
		"v0.0.0-20261124020323-773cf8d45234": cli.StateWarning,
		"v0.5.1-3-gabcdef0":                  cli.StateOK,
	} {
		if got := skew("server", other, own); got.State != want {
			t.Errorf("skew(%s, %s) = %+v, want %s", other, own, got, want)
		}
	}
}

func TestAgentVersions(t *testing.T) {
	cluster := func(name, version string) clusterv1.ManagedCluster {
		out := clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
		out.Status.ClusterClaims = []clusterv1.ManagedClusterClaim{{Name: "id.k8s.io", Value: "v0.1.0"}, {Name: clusterv1.AgentVersionClaim, Value: version}}
		return out
	}
	clusters := []clusterv1.ManagedCluster{cluster("same", "v0.5.0"), cluster("next", "v0.6.1"), cluster("upstream", "")}
	if got := agentVersions(clusters, "v0.5.0"); got != nil {
		t.Errorf("agentVersions(%v) = %+v, want none", clusters, got)
	}
	clusters = append(clusters, cluster("old", "v0.3.9"))
	got := agentVersions(clusters, "v0.5.0")
	if len(got) != 1 || got[0].State != cli.StateBad || !strings.Contains(got[0].Cause, "old (v0.3.9)") || strings.Contains(got[0].Cause, "next") {
		t.Errorf("agentVersions(%v) = %+v, want one Bad finding that names only cluster old", clusters, got)
	}
}

func TestClusterFinding(t *testing.T) {
	now := time.Now()
	condition := func(kind string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status}
	}
	joined := condition(clusterv1.ManagedClusterConditionJoined, metav1.ConditionTrue)
	available := condition(clusterv1.ManagedClusterConditionAvailable, metav1.ConditionTrue)
	for name, test := range map[string]struct {
		accepted   bool
		conditions []metav1.Condition
		renewed    time.Time
		want       string
	}{
		"available":                   {true, []metav1.Condition{joined, available}, now, cli.StateOK},
		"no permission to read Lease": {true, []metav1.Condition{joined, available}, time.Time{}, cli.StateOK},
		"not accepted":                {false, nil, time.Time{}, cli.StateWarning},
		"renewed in time":             {true, []metav1.Condition{joined, available}, now.Add(-85 * time.Second), cli.StateOK},
		"late":                        {true, []metav1.Condition{joined, available}, now.Add(-95 * time.Second), cli.StateWarning},
		"late, without joining":       {true, nil, now.Add(-95 * time.Second), cli.StateWarning},
		"silent":                      {true, []metav1.Condition{joined, available}, now.Add(-6 * time.Minute), cli.StateBad},
		"lease in the future":         {true, []metav1.Condition{joined, available}, now.Add(time.Minute), cli.StateBad},
		"not joined":                  {true, nil, time.Time{}, cli.StateWarning},
		"clock not synchronized":      {true, []metav1.Condition{joined, available, condition(clusterv1.ManagedClusterConditionClockSynced, metav1.ConditionFalse)}, now, cli.StateBad},
		"API server away":             {true, []metav1.Condition{joined, condition(clusterv1.ManagedClusterConditionAvailable, metav1.ConditionFalse)}, now, cli.StateBad},
	} {
		cluster := &clusterv1.ManagedCluster{Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: test.accepted}, Status: clusterv1.ManagedClusterStatus{Conditions: test.conditions}}
		if got := clusterFinding(cluster, test.renewed, now, "start the agent"); got.State != test.want {
			t.Errorf("clusterFinding() of a cluster that is %s = %+v, want %s", name, got, test.want)
		}
	}
}

// TestAgentHangs checks that the doctor shows the age of the Lease, and names a restart of the agent as the remedy, if the
// agent has not processed a ManifestWork or renewed its Lease.
func TestAgentHangs(t *testing.T) {
	changed, renewed := metav1.NewTime(time.Now().Add(-10*time.Minute)), metav1.NewMicroTime(time.Now().Add(-95*time.Second))
	work := func(namespace string, conditions ...metav1.Condition) *workv1.ManifestWork {
		return &workv1.ManifestWork{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", Generation: 1, CreationTimestamp: changed},
			Status:     workv1.ManifestWorkStatus{Conditions: conditions},
		}
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "hangs", Name: clusterLease}, Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}}
	hub := &hubDoctor{report: report{Clients: &cli.Clients{Kube: fake.NewClientset(lease), OCM: ocmfake.NewSimpleClientset(
		work("hangs"), work("no-lease"), work("rejects", metav1.Condition{Type: workv1.WorkApplied, Status: metav1.ConditionFalse, ObservedGeneration: 1, Message: "no such kind"}),
	)}}}
	findings, err := hub.works(t.Context())
	if err != nil || len(findings) != 3 {
		t.Fatalf("works() = %+v, %v, want 3 findings", findings, err)
	}
	const restart, conditions = "rollout restart deployment/agent", "condition Applied of the manifests"
	for i, want := range []struct{ cause, remedy, not string }{
		{`web \(generation 1 is not processed\); the agent renewed its Lease 1m[34]\ds ago$`, restart, conditions},
		{`web \(generation 1 is not processed\)$`, restart, conditions},
		{`web \(no such kind\)$`, conditions, restart},
	} {
		if f := findings[i]; !regexp.MustCompile(want.cause).MatchString(f.Cause) || !strings.Contains(f.Remedy, want.remedy) || strings.Contains(f.Remedy, want.not) {
			t.Errorf("works() = %+v, want cause %q, and a remedy with %q, without %q", f, want.cause, want.remedy, want.not)
		}
	}

	served := map[string]any{
		"/apis/cluster.open-cluster-management.io/v1/managedclusters/hangs": &clusterv1.ManagedCluster{
			Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
			Status: clusterv1.ManagedClusterStatus{Conditions: []metav1.Condition{
				{Type: clusterv1.ManagedClusterConditionJoined, Status: metav1.ConditionTrue},
				{Type: clusterv1.ManagedClusterConditionAvailable, Status: metav1.ConditionTrue},
			}},
		},
		"/apis/coordination.k8s.io/v1/namespaces/hangs/leases": &coordinationv1.LeaseList{Items: []coordinationv1.Lease{*lease}},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if served[r.URL.Path] == nil {
			w.WriteHeader(http.StatusForbidden)
		}
		_ = json.NewEncoder(w).Encode(served[r.URL.Path])
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	if f := membership(t.Context(), config, "hangs"); f.State != cli.StateBad || !strings.Contains(f.Cause, "its Lease was not renewed for 1m") || !strings.Contains(f.Remedy, restart) {
		t.Errorf("membership() = %+v, want %s, the age of the Lease, and a restart of the agent", f, cli.StateBad)
	}
	delete(served, "/apis/coordination.k8s.io/v1/namespaces/hangs/leases")
	if f := membership(t.Context(), config, "hangs"); f.State != cli.StateOK {
		t.Errorf("membership() without permission to read the Lease = %+v, want %s", f, cli.StateOK)
	}
}

func TestSnapshotFindings(t *testing.T) {
	const hour = 3600
	for name, test := range map[string]struct {
		embedded, interval float64
		age                time.Duration // 0 for none
		state, cause       string
	}{
		"external etcd": {0, 0, 0, "", ""},
		"no schedule":   {1, 0, 0, cli.StateWarning, "none are scheduled (--snapshot-interval=0)"},
		"none yet":      {1, 6 * hour, 0, cli.StateWarning, "none was saved yet"},
		"recent":        {1, 6 * hour, 11 * time.Hour, cli.StateOK, "the last one was saved 11h0m"},
		"late":          {1, 6 * hour, 13 * time.Hour, cli.StateWarning, "ago, with an interval of 6h0m0s"},
	} {
		metrics := map[string]float64{"hub_apiserver_etcd_quota_bytes": test.embedded, "hub_apiserver_snapshot_interval_seconds": test.interval}
		if test.age > 0 {
			metrics["hub_apiserver_snapshot_last_success_timestamp_seconds"] = float64(time.Now().Add(-test.age).Unix())
		}
		got := snapshotFindings(func(name string) map[quota]float64 { return map[quota]float64{{}: metrics[name]} })
		if test.state == "" {
			if len(got) > 0 {
				t.Errorf("snapshotFindings(%s) = %+v, want none", name, got)
			}
			continue
		}
		if len(got) != 1 || got[0].State != test.state || !strings.Contains(got[0].Cause, test.cause) {
			t.Errorf("snapshotFindings(%s) = %+v, want %s with %q", name, got, test.state, test.cause)
		}
	}
}

// TestClocksThatDiffer checks the finding about a clock that is ahead or behind.
func TestClocksThatDiffer(t *testing.T) {
	for skew, want := range map[time.Duration]struct{ state, cause string }{
		0:                 {cli.StateOK, "agrees"},
		maxSkew:           {cli.StateOK, "agrees"},
		-maxSkew:          {cli.StateOK, "agrees"},
		maxSkew + 1:       {cli.StateBad, "30s ahead of"},
		-2 * time.Minute:  {cli.StateBad, "2m0s behind"},
		-24 * time.Hour:   {cli.StateBad, "24h0m0s behind"},
		100 * time.Second: {cli.StateBad, "1m40s ahead of"},
	} {
		if got := (&response{dated: true, skew: skew}).clock("clock"); got.State != want.state || !strings.Contains(got.Cause, want.cause) {
			t.Errorf("clock() with a skew of %s = %+v, want %s with %q", skew, got, want.state, want.cause)
		}
	}
	if got := (&response{}).clock("clock"); got.State != cli.StateUnknown {
		t.Errorf("clock() without a Date = %+v, want %s", got, cli.StateUnknown)
	}
}

// TestLateDeletion checks that a deletion that the agent has not completed is late, whatever was applied before.
func TestLateDeletion(t *testing.T) {
	applied := &metav1.Condition{Type: workv1.WorkApplied, Status: metav1.ConditionTrue, ObservedGeneration: 1}
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Generation: 1, CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour))}}
	if got := late(work, applied); got != "" {
		t.Errorf("late() of an applied ManifestWork = %q, want none", got)
	}
	work.DeletionTimestamp = ptr.To(metav1.Now())
	if got := late(work, applied); got != "" {
		t.Errorf("late() of a ManifestWork that was just deleted = %q, want none", got)
	}
	work.DeletionTimestamp = ptr.To(metav1.NewTime(time.Now().Add(-time.Hour)))
	if got := late(work, applied); !strings.Contains(got, "its deletion is not processed") {
		t.Errorf("late() of a ManifestWork whose deletion waits = %q, want that", got)
	}
}
