package clusteradm

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

func TestSkewOfOneMinorReleaseIsSupported(t *testing.T) {
	const own = "v0.5.0"
	for other, want := range map[string]string{
		own:                                  stateOK,
		"v0.5.3":                             stateOK,
		"v0.4.1":                             stateOK,
		"v0.6.0":                             stateOK,
		"v0.3.9":                             stateBad,
		"v0.7.0":                             stateBad,
		"v1.5.0":                             stateBad,
		"v0.0.0-20261124020323-773cf8d45234": stateWarning,
		"v0.5.1-3-gabcdef0":                  stateOK,
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
	if len(got) != 1 || got[0].State != stateBad || !strings.Contains(got[0].Cause, "old (v0.3.9)") || strings.Contains(got[0].Cause, "next") {
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
		"available":                   {true, []metav1.Condition{joined, available}, now, stateOK},
		"no permission to read Lease": {true, []metav1.Condition{joined, available}, time.Time{}, stateOK},
		"not accepted":                {false, nil, time.Time{}, stateWarning},
		"silent":                      {true, []metav1.Condition{joined, available}, now.Add(-6 * time.Minute), stateBad},
		"lease in the future":         {true, []metav1.Condition{joined, available}, now.Add(time.Minute), stateBad},
		"not joined":                  {true, nil, time.Time{}, stateWarning},
		"clock not synchronized":      {true, []metav1.Condition{joined, available, condition(clusterv1.ManagedClusterConditionClockSynced, metav1.ConditionFalse)}, now, stateBad},
		"API server away":             {true, []metav1.Condition{joined, condition(clusterv1.ManagedClusterConditionAvailable, metav1.ConditionFalse)}, now, stateBad},
	} {
		cluster := &clusterv1.ManagedCluster{Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: test.accepted}, Status: clusterv1.ManagedClusterStatus{Conditions: test.conditions}}
		got := stateOK
		f := clusterFinding(cluster, test.renewed, now)
		if f != nil {
			got = f.State
		}
		if got != test.want {
			t.Errorf("clusterFinding() of a cluster that is %s = %+v, want %s", name, f, test.want)
		}
	}
}

// TestClocksThatDiffer checks the finding about a clock that is ahead or behind.
func TestClocksThatDiffer(t *testing.T) {
	for skew, want := range map[time.Duration]struct{ state, cause string }{
		0:                 {stateOK, "agrees"},
		maxSkew:           {stateOK, "agrees"},
		-maxSkew:          {stateOK, "agrees"},
		maxSkew + 1:       {stateBad, "30s ahead of"},
		-2 * time.Minute:  {stateBad, "2m0s behind"},
		-24 * time.Hour:   {stateBad, "24h0m0s behind"},
		100 * time.Second: {stateBad, "1m40s ahead of"},
	} {
		if got := (&response{dated: true, skew: skew}).clock("clock"); got.State != want.state || !strings.Contains(got.Cause, want.cause) {
			t.Errorf("clock() with a skew of %s = %+v, want %s with %q", skew, got, want.state, want.cause)
		}
	}
	if got := (&response{}).clock("clock"); got.State != stateUnknown {
		t.Errorf("clock() without a Date = %+v, want %s", got, stateUnknown)
	}
}
