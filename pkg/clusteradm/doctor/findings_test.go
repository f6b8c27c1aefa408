package doctor

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
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
