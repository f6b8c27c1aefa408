package monitoring

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"
)

// testSeries feeds series to the alerts with causes that would take too long on real servers, or that only a defect
// of the server has. testLive makes the others happen. Values are 30 seconds apart.
func testSeries(t *testing.T, fired map[string]bool) {
	server, agent := load(t, serverBase, serverComponent), load(t, agentBase, agentComponent)
	const hub, cluster = `job="hub-apiserver",pod="a"`, `job="open-cluster-management-agent",pod="a"`
	type series []string
	for _, test := range []struct {
		alert string
		// fires causes the alert. quiet is similar, and does not.
		fires, quiet series
	}{
		// Agents report every minute: with 10 clusters, 1 report per 10 seconds is few, and 1 per 8 seconds is not.
		{"HubAPIServerReportsLag",
			series{`hub_apiserver_search_sync_requests_total{` + hub + `,code="200"} 0+2x80`, `hub_apiserver_search_embedded_clusters{` + hub + `} 10x80`},
			series{`hub_apiserver_search_sync_requests_total{` + hub + `,code="200"} 0+4x80`, `hub_apiserver_search_embedded_clusters{` + hub + `} 10x80`}},
		// Only a defect lets a worker wait for longer than the deadline of its object.
		{"HubAPIServerQueueStuck",
			series{`stuck_workers{` + hub + `,name="clusterpermission"} 1x40`},
			series{`stuck_workers{` + hub + `,name="clusterpermission"} 0x40`}},
		{"HubAPIServerQueueStuck",
			series{`fair_queue_depth{` + hub + `,name="clusterpermission"} 5x40`, `fair_queue_wait_duration_seconds_count{` + hub + `,name="clusterpermission"} 7x40`},
			series{`fair_queue_depth{` + hub + `,name="clusterpermission"} 5x40`, `fair_queue_wait_duration_seconds_count{` + hub + `,name="clusterpermission"} 7+1x40`}},
		{"HubAgentQueueStuck",
			series{`stuck_workers{` + cluster + `,name="manifestwork"} 1x40`},
			series{`stuck_workers{` + cluster + `,name="manifestwork"} 0x40`}},
		{"HubAgentQueueStuck",
			series{`fair_queue_depth{` + cluster + `,name="manifestwork"} 5x40`, `fair_queue_wait_duration_seconds_count{` + cluster + `,name="manifestwork"} 7x40`},
			series{`fair_queue_depth{` + cluster + `,name="manifestwork"} 5x40`, `fair_queue_wait_duration_seconds_count{` + cluster + `,name="manifestwork"} 7+1x40`}},
		// The check stuck-workers fails for the same reason.
		{"HubAPIServerNotReady",
			series{`kubernetes_healthcheck{` + hub + `,name="stuck-workers",type="readyz"} 0x40`},
			series{`kubernetes_healthcheck{` + hub + `,name="shutdown",type="readyz"} 0x40`}},
		// The server checks the prerequisites every five minutes.
		{"HubAPIServerRegistrationBlocked",
			series{`hub_apiserver_registration_hub_problems{` + hub + `,driver="csr"} 1x40`},
			series{`hub_apiserver_registration_hub_problems{` + hub + `,driver="csr"} 0x40`}},
		// No request may depend on the speed of the machine that runs the tests.
		{"HubAPIServerSlow",
			series{latency(hub, "0.8", "0+0x80"), latency(hub, "2", "0+9x80"), latency(hub, "+Inf", "0+9x80")},
			series{latency(hub, "0.8", "0+9x80"), latency(hub, "2", "0+9x80"), latency(hub, "+Inf", "0+9x80")}},
		// A schedule has at least a minute between snapshots, and the alert waits for 15. Series begin in 1970.
		{"HubAPIServerSnapshotsFail",
			series{`hub_apiserver_snapshot_last_success_timestamp_seconds{` + hub + `} 0x80`, `hub_apiserver_snapshot_interval_seconds{` + hub + `} 60x80`},
			series{`hub_apiserver_snapshot_last_success_timestamp_seconds{` + hub + `} 0x80`, `hub_apiserver_snapshot_interval_seconds{` + hub + `} 0x80`}},
		// The alert waits for an hour, because an administrator needs time to confirm a restore.
		{"HubAgentObjectsRetained",
			series{`agent_retained_objects{` + cluster + `,resource="manifestworks"} 3x140`},
			series{`agent_retained_objects{` + cluster + `,resource="manifestworks"} 3x60 0x80`}},
		// Only a defect of the server makes its evaluation of RBAC differ.
		{"HubAPIServerSearchPermissionsDisagree",
			series{`hub_apiserver_search_scope_disagreements_total{` + hub + `} 0x5 1x5`},
			series{`hub_apiserver_search_scope_disagreements_total{` + hub + `} 0x10`}},
	} {
		for want, series := range map[bool]series{true: test.fires, false: test.quiet} {
			p := newPrometheus(t, server, agent)
			p.feed(t, series...)
			if got := slices.Contains(p.firing(), test.alert); got != want {
				t.Errorf("%s fires with %q = %t, want %t", test.alert, series, got, want)
			}
		}
		fired[test.alert] = true
	}
}

func latency(of, bound, values string) string {
	return fmt.Sprintf(`apiserver_request_sli_duration_seconds_bucket{%s,resource="manifestworks",verb="PUT",le=%q} %s`, of, bound, values)
}

// TestAlerts lets every alert fire.
func TestAlerts(t *testing.T) {
	alerts := load(t, serverBase, serverComponent).alerts()
	maps.Copy(alerts, load(t, agentBase, agentComponent).alerts())
	fired := map[string]bool{}
	t.Run("series", func(t *testing.T) { testSeries(t, fired) })
	if !t.Run("live", func(t *testing.T) { testLive(t, fired) }) {
		return
	}
	if flag.Lookup("test.run").Value.String() != "" {
		return // a part of the tests
	}
	for name := range alerts {
		if !fired[name] {
			t.Errorf("alert %s fires = false, want a test that makes its cause", name)
		}
	}
}
