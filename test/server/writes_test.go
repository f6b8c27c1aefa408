package server

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/testutil"

	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// writesOnHub is an audit policy for the hub that logs the writes of the server. It excludes reviews,
// which clients create but the hub does not store.
const writesOnHub = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: ["RequestReceived"]
rules:
- level: None
  resources: [{group: authorization.k8s.io}, {group: authentication.k8s.io}]
- level: Metadata
  users: ["system:serviceaccount:` + localhub.HubNamespace + ":" + localhub.ServerName + `"]
  verbs: ["create", "update", "patch", "delete", "deletecollection"]
- level: None
`

// leases contains the names of the leases that a server renews on the hub.
var leases = []string{"hub-apiserver-controllers", "hub-apiserver-storage"}

// auditedFleet starts a fleet without managed clusters, in which the test can count all writes of the
// server.
func auditedFleet(t *testing.T) *auditor {
	t.Helper()
	f := ownFleet(t, localhub.FleetOptions{
		HubAuditPolicy: writesOnHub,
		// Compaction would write its own key every five minutes.
		APIServerArgs: []string{"--etcd-compaction-interval=0"},
	})
	config := framework.Must(f.Server.UserConfig("admin", "system:masters"))(t)
	return &auditor{fleet: f, direct: framework.OCMClient(t, config, nil)}
}

// auditor counts the writes of a server.
type auditor struct {
	*fleet
	// direct sends requests directly to the server, as a user that the server authorizes without a
	// request to the hub.
	direct *versioned.Clientset
	// clusters is the number of managed clusters that TestManyPermissions joins.
	clusters int
	// onHub counts the writes in the hub's audit log up to position.
	onHub    writesOfLog
	position int64
}

// writesOfLog contains the counts of the writes in an audit log.
type writesOfLog struct {
	// renewals counts the lease renewals. others contains all other writes, except the server's
	// CertificateSigningRequest.
	renewals int
	others   []string
}

// writes contains the counts of all writes by a server and by its clients.
type writes struct {
	// revision is the revision of the server's storage. Each write increases it.
	revision string
	// requests counts the writing requests since the server's start. It includes the server's own
	// requests, requests without a change and failed requests.
	requests int
	writesOfLog
	// metrics contains all metrics of the server.
	metrics testutil.Metrics
}

// sameAs returns an error that describes the writes since before, other than lease renewals, or nil
// if there are none.
func (w writes) sameAs(before writes) error {
	if w.revision != before.revision || w.requests != before.requests || len(w.others) != len(before.others) {
		return fmt.Errorf("storage revision %s -> %s, %d writing requests, writes on the hub: %v, want no writes",
			before.revision, w.revision, w.requests-before.requests, w.others[len(before.others):])
	}
	return nil
}

func (a *auditor) writes(ctx context.Context) (writes, error) {
	// The resource version of a list is the revision of the whole storage.
	list, err := a.direct.ClusterV1().ManagedClusters().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return writes{}, err
	}
	raw, err := a.direct.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return writes{}, err
	}
	measured := testutil.NewMetrics()
	if err := testutil.ParseMetrics(string(raw), &measured); err != nil {
		return writes{}, err
	}
	if err := a.readLog(); err != nil {
		return writes{}, err
	}
	out := writes{revision: list.ResourceVersion, writesOfLog: a.onHub, metrics: measured}
	for _, sample := range measured["apiserver_request_total"] {
		if slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}, string(sample.Metric["verb"])) {
			out.requests += int(sample.Value)
		}
	}
	return out, nil
}

// readLog counts the writes that the audit log of the hub contains after the previous call.
func (a *auditor) readLog() error {
	events, end, err := localhub.ReadAudit(a.Hub.AuditLog(), a.position)
	if err != nil {
		return err
	}
	a.position = end
	into := &a.onHub
	for _, event := range events {
		if event.ObjectRef == nil {
			into.others = append(into.others, event.Verb+" "+event.RequestURI)
			continue
		}
		if event.ObjectRef.Resource == "leases" && slices.Contains(leases, event.ObjectRef.Name) {
			into.renewals++
			continue
		}
		if event.ObjectRef.Resource == "certificatesigningrequests" {
			continue // at its start, a server checks with such a request whether the hub signs certificates
		}
		into.others = append(into.others, fmt.Sprintf("%s %s %s/%s", event.Verb, event.ObjectRef.Resource, event.ObjectRef.Namespace, event.ObjectRef.Name))
	}
	return nil
}

// drained returns an error if the queues of the server's controllers are not empty, or if fewer
// ClusterPermissions were queued since its start.
func (w writes) drained(permissions int) error {
	for _, name := range []string{"workqueue_depth", "workqueue_unfinished_work_seconds"} {
		for _, sample := range w.metrics[name] {
			if sample.Value != 0 {
				return fmt.Errorf("%s of queue %s = %s, want 0", name, sample.Metric["name"], sample.Value)
			}
		}
	}
	added := 0
	for _, sample := range w.metrics["workqueue_adds_total"] {
		if sample.Metric["name"] == "clusterpermission" {
			added += int(sample.Value)
		}
	}
	if added < permissions {
		return fmt.Errorf("queued ClusterPermissions = %d, want at least %d", added, permissions)
	}
	return nil
}

// quiet waits until the controllers have queued at least the given number of ClusterPermissions,
// their queues are empty, and there were no new writes for some seconds. It returns the counts of
// writes.
func (a *auditor) quiet(t *testing.T, permissions int) writes {
	t.Helper()
	// Some controllers wait for a second before they act. A number of checks instead of a time would
	// need minutes on a busy machine.
	const unchanged = 3 * time.Second
	var last writes
	var since time.Time
	framework.Eventually(t, "the server is quiet", func(ctx context.Context) error {
		now, err := a.writes(ctx)
		if err != nil {
			return err
		}
		err = now.sameAs(last)
		if last = now; err != nil {
			since = time.Now()
			return err
		}
		if err := now.drained(permissions); err != nil {
			return err
		}
		if quiet := time.Since(since); quiet < unchanged {
			return fmt.Errorf("quiet for %v, want %v", quiet, unchanged)
		}
		return nil
	})
	return last
}
