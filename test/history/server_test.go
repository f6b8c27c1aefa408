package history_test

import (
	"context"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/history"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

func TestMain(m *testing.M) { os.Exit(framework.Run(m)) }

const namespace = "history"

// TestServer kills the server during a run, through the hub and directly.
func TestServer(t *testing.T) {
	t.Parallel()
	f := framework.OwnFleet(t, localhub.FleetOptions{})
	if err := framework.MakeNamespace(t.Context(), f.HubClient, namespace); err != nil {
		t.Fatal(err)
	}
	direct := framework.Must(f.Server.UserConfig("admin", "system:masters"))(t)
	run, err := history.Start(t.Context(), history.Config{
		Targets: []*rest.Config{f.Hub.AdminConfig(), direct}, Namespace: namespace, Seed: 1, Dir: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	wait(t, run, 3*time.Second)
	run.Mark("kill")
	if err := f.Server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	recovered, err := run.Recovered(t.Context())
	t.Log(recovered, err)
	wait(t, run, 3*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := run.Stop(ctx); err != nil {
		t.Error(err)
	}
	result, err := run.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", result)
	for _, v := range result.Violations {
		t.Error(v)
	}
}

func wait(t *testing.T, _ *history.Run, d time.Duration) {
	select {
	case <-t.Context().Done():
	case <-time.After(d):
	}
}
