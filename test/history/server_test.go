package history

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
	"open-cluster-management.io/hub-apiserver/test/seed"
)

const (
	namespace = "history"
	// lifetime is the lifetime of keys. It is short, so that a run has several generations of objects.
	lifetime = 5 * time.Second
)

func TestMain(m *testing.M) { os.Exit(framework.Run(m)) }

// TestHistory runs the clients against two servers and their hub, where processes are killed meanwhile. The environment
// variables HISTORY_CALLS (successful calls before and after each kill) and HISTORY_KILLS make longer runs.
func TestHistory(t *testing.T) {
	t.Parallel()
	f := framework.OwnFleet(t, localhub.FleetOptions{})
	// In the namespace of a cluster, because the server writes that a ManifestWork waits for its cluster.
	if err := localhub.JoinCluster(t.Context(), f.Hub, namespace); err != nil {
		t.Fatal(err)
	}
	direct := framework.Must(f.Server.UserConfig("admin", "system:masters"))(t)
	replica := framework.Must(f.StartServers(t, nil)[0].UserConfig("admin", "system:masters"))(t)
	run := start(t, f.Hub.AdminConfig(), direct, replica)
	calls := framework.Environment(t, "HISTORY_CALLS", 300)
	succeed(t, run, calls)
	victims := []*localhub.Process{f.Server.Process, f.Hub.APIServer, f.Hub.Etcd.Process}
	for i := range framework.Environment(t, "HISTORY_KILLS", 1) {
		run.Mark("kill")
		if err := victims[i%len(victims)].Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		run.Mark("restart")
		if _, err := run.Recovered(t.Context()); err != nil {
			t.Fatal(err)
		}
		succeed(t, run, calls)
	}
	result := stop(t, run)
	for _, v := range result.Violations {
		t.Error(v)
	}
	if kill := result.Marks[0]; kill.Name != "kill" || kill.Failed == 0 || !kill.Incomplete && kill.Recovered == 0 {
		t.Errorf("mark = %+v, want failed calls", kill)
	}
	if restart := result.Marks[1]; restart.Incomplete || result.Unavailable == 0 {
		t.Errorf("mark = %+v, longest unavailability %s; want an unavailability that ended", restart, result.Unavailable)
	}
	if result.Operations[OK] == 0 || result.Acknowledged == 0 || result.Failures["dial: connection refused"]+result.Failures["503 ServiceUnavailable"] == 0 || result.Events < result.Acknowledged || result.Resumes == 0 {
		t.Errorf("result = %+v, want acknowledged writes, failures, events and resumed watches", result)
	}
}

// start starts a run.
func start(t *testing.T, targets ...*rest.Config) *Run {
	t.Helper()
	dir := filepath.Join(framework.OwnDir(t), "history")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	run, err := Start(t.Context(), Config{
		Targets: targets, Namespace: namespace, Seed: seed.Of(t), Dir: dir, KeyLifetime: lifetime,
	})
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// succeed waits for more calls that succeed.
func succeed(t *testing.T, run *Run, calls int) {
	t.Helper()
	want := run.Succeeded() + calls
	framework.Eventually(t, "the clients make progress", func(context.Context) error {
		if n := run.Succeeded(); n < want {
			return fmt.Errorf("%d of %d calls succeeded", n, want)
		}
		return nil
	})
}

// stop stops a run and returns its result.
func stop(t *testing.T, run *Run) *Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	if err := run.Stop(ctx); err != nil {
		t.Log(err) // the result contains the reason
	}
	result, err := run.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d acknowledged writes, operations %v, failures %v, %d events, %d resumes, %d relists, unavailable %s, marks %+v",
		result.Acknowledged, result.Operations, result.Failures, result.Events, result.Resumes, result.Relists, result.Unavailable, result.Marks)
	return result
}
