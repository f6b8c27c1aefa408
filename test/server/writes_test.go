package server

import (
	"context"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/testutil"

	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// writesOnHub is an audit policy for the hub that logs what our server writes
// there. Reviews are asked by creating them and are stored nowhere.
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

// leases are what a server writes to the hub to say that it lives.
var leases = []string{"hub-apiserver-controllers", "hub-apiserver-storage"}

// auditedFleet starts a fleet without managed clusters, all of whose server's
// writes can be counted.
func auditedFleet(t *testing.T) *auditor {
	t.Helper()
	f := ownFleet(t, localhub.FleetOptions{
		HubAuditPolicy: writesOnHub,
		// Compaction writes a key of its own every five minutes.
		APIServerArgs: []string{"--etcd-compaction-interval=0"},
	})
	config := framework.Must(f.Server.UserConfig("admin", "system:masters"))(t)
	return &auditor{fleet: f, direct: framework.OCMClient(t, config, nil)}
}

// auditor counts the writes of a server.
type auditor struct {
	*fleet
	// direct talks to the server itself, past the hub, as somebody about whom it
	// need not ask the hub.
	direct *versioned.Clientset
}

// writes are all that a server, and whoever used it, has written so far.
type writes struct {
	// revision of the server's storage: it moves with each write, whatever it is of.
	revision string
	// requests that write, since the server's start, its own among them; also
	// those that changed nothing, or failed.
	requests int
	// renewals of the leases on the hub, and all other writes there but the server's one request
	// for a certificate.
	renewals int
	others   []string
}

// sameAs tells what has been written since; nil if nothing but leases.
func (w writes) sameAs(before writes) error {
	if w.revision != before.revision || w.requests != before.requests || len(w.others) != len(before.others) {
		return fmt.Errorf("the storage went from revision %s to %s, %d requests wrote, on the hub: %v",
			before.revision, w.revision, w.requests-before.requests, w.others[len(before.others):])
	}
	return nil
}

func (a *auditor) writes(ctx context.Context) (writes, error) {
	// A list says at which revision of the whole storage it was read.
	list, err := a.direct.ClusterV1().ManagedClusters().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return writes{}, err
	}
	out := writes{revision: list.ResourceVersion}
	measured, err := a.metrics(ctx)
	if err != nil {
		return writes{}, err
	}
	for _, sample := range measured["apiserver_request_total"] {
		if slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}, string(sample.Metric["verb"])) {
			out.requests += int(sample.Value)
		}
	}
	return out, a.onHub(&out)
}

func (a *auditor) metrics(ctx context.Context) (testutil.Metrics, error) {
	raw, err := a.direct.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	measured := testutil.NewMetrics()
	return measured, testutil.ParseMetrics(string(raw), &measured)
}

// onHub counts what the hub has logged.
func (a *auditor) onHub(into *writes) error {
	events, _, err := localhub.ReadAudit(a.Hub.AuditLog(), 0)
	if err != nil {
		return err
	}
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
			continue // by which a server finds out at its start whether the hub signs certificates
		}
		into.others = append(into.others, fmt.Sprintf("%s %s %s/%s", event.Verb, event.ObjectRef.Resource, event.ObjectRef.Namespace, event.ObjectRef.Name))
	}
	return nil
}

// drained tells why the controllers of the server still have something to do, or
// have not looked at as many ClusterPermissions since its start; nil if none of that.
func (a *auditor) drained(ctx context.Context, permissions int) error {
	measured, err := a.metrics(ctx)
	if err != nil {
		return err
	}
	for _, name := range []string{"workqueue_depth", "workqueue_unfinished_work_seconds"} {
		for _, sample := range measured[name] {
			if sample.Value != 0 {
				return fmt.Errorf("%s of %s is %s", name, sample.Metric["name"], sample.Value)
			}
		}
	}
	added := 0
	for _, sample := range measured["workqueue_adds_total"] {
		if sample.Metric["name"] == "clusterpermission" {
			added += int(sample.Value)
		}
	}
	if added < permissions {
		return fmt.Errorf("%d ClusterPermissions were queued, not %d", added, permissions)
	}
	return nil
}

// quiet waits until the controllers have looked at as many ClusterPermissions, have
// nothing left to do, and nobody writes any more.
func (a *auditor) quiet(t *testing.T, permissions int) writes {
	t.Helper()
	// Some controllers wait for a second before they act.
	const unchanged = 30
	var last writes
	times := 0
	framework.Eventually(t, "the server is quiet", func(ctx context.Context) error {
		now, err := a.writes(ctx)
		if err != nil {
			return err
		}
		err = a.drained(ctx, permissions)
		if err == nil {
			err = now.sameAs(last)
		}
		if last = now; err != nil {
			times = 0
			return err
		}
		if times++; times < unchanged {
			return fmt.Errorf("for %d of %d looks", times, unchanged)
		}
		return nil
	})
	return last
}
