package campaign

import (
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/history"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	// namespace contains the objects of the history. No agent handles it.
	namespace = "campaign"
	// bar is the maximum time of recovery from a single failure.
	bar = 15 * time.Second
	// patience is the maximum time until everything works again, so that the campaign can continue.
	patience = 5 * time.Minute
)

// campaign is the hub that the rows break, one after the other.
type campaign struct {
	*framework.Replicated
	// t and history are those of the current row.
	t       *testing.T
	history *history.Run
	// restore is what the row snapshot-restored has left.
	restore *restoration
	// full is true with CAMPAIGN.
	full bool
	// combined is true for a fault that runs at the same time as others.
	combined bool
	// pause is the duration of a fault, and outage that of an unavailable APIService.
	pause, outage time.Duration
	// random is the duration of random faults, and seed that of their choice.
	random time.Duration
	seed   uint64
}

// row is one fault.
type row struct {
	name  string
	fault string
	// single is true for a failure of one part, which must be over within the bar.
	single bool
	// outage is true if no redundant part is left: the recovery begins with the end of the fault.
	outage bool
	// short is true for the rows of `make test`.
	short bool
	// run begins the fault, holds it and ends it. It returns a note for the document, or "".
	run func(ctx context.Context, c *campaign) (note string, err error)
	// then runs after everything works again, if set. It checks what the fault must not have changed.
	then func(ctx context.Context, c *campaign) error
}

func TestCampaign(t *testing.T) {
	full := os.Getenv("CAMPAIGN") == "1"
	pause, outage, random := 5*time.Second, 10*time.Second, 20*time.Second
	if full {
		pause, outage, random = time.Minute, time.Hour, 30*time.Minute
	}
	if text := os.Getenv("DURATION"); text != "" {
		random = framework.Must(time.ParseDuration(text))(t)
		outage = random
	}
	selected := framework.Must(regexp.Compile(os.Getenv("ROW")))(t)
	c := &campaign{
		full: full, outage: outage, random: random,
		pause: time.Duration(framework.Environment(t, "FAULT_SECONDS", int(pause/time.Second))) * time.Second,
		seed:  uint64(framework.Environment(t, "SEED", int(time.Now().UnixNano()%1e6))),
	}
	framework.RequireRoot(t)
	dir := framework.OwnDir(t)
	c.Replicated = framework.StartReplicated(t, dir, framework.ReplicatedOptions{
		Clusters: []string{framework.Cluster1}, EtcdDataDirs: smallDisks(t, dir),
		// Nothing but the retention after a restore keeps the objects of a missing ManifestWork.
		AgentArgs:       []string{"--eviction-grace-period=0s"},
		PreparePostgres: func(directory string) error { return mountDisk(t, directory, postgresDiskBytes) },
	})
	if err := localhub.JoinCluster(t.Context(), c.Hub, namespace); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range rows {
		names = append(names, r.name)
	}
	for _, r := range rows {
		if os.Getenv("ROW") != "" && !selected.MatchString(r.name) || os.Getenv("ROW") == "" && !full && !r.short {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			measured := c.measure(t, &r)
			if measured == nil || !full {
				return
			}
			// Written after each row, because a campaign takes hours.
			if err := write(names, map[string]*result{r.name: measured}); err != nil {
				t.Error(err)
			}
			if took := time.Duration(measured.Recovery * float64(time.Second)); r.single && took > bar {
				t.Errorf("recovery took %s, want at most %s", took, bar)
			}
		})
	}
}

// measure breaks one thing, and returns what clients saw. It returns nil if the row is not possible here.
func (c *campaign) measure(t *testing.T, r *row) *result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience+c.longest(r))
	defer cancel()
	c.healthy(ctx, t)
	targets := make([]*rest.Config, 8)
	for i := range targets {
		targets[i] = c.Hub.AdminConfig()
	}
	run, err := history.Start(ctx, history.Config{Targets: targets, Namespace: namespace, Pause: 50 * time.Millisecond, Dir: os.Getenv("KEEP")})
	if err != nil {
		t.Fatal(err)
	}
	c.t, c.history = t, run
	managed, ocm := c.ManagedClient, c.OCM
	delivery := startProbe(ctx, "delivery", deliver(ocm, managed, framework.Unique("deliver")))
	searches := startProbe(ctx, "search", search(ocm))
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			delivery.stop()
			searches.stop()
		}
	}
	defer stop()
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %s: %v", r.name, what, err)
		}
	}
	_, err = run.Recovered(ctx)
	must("before the fault", err)
	must("before the fault", delivery.succeeded(ctx))
	must("before the fault", searches.succeeded(ctx))

	run.Mark("begin")
	begun := time.Now()
	note, err := r.run(ctx, c)
	ended := time.Now()
	run.Mark("end")
	must("fault", err)
	_, err = run.Recovered(ctx)
	must("after the fault", err)
	must("after the fault", delivery.succeeded(ctx))
	must("after the fault", searches.succeeded(ctx))
	if r.then != nil {
		run.Mark("then")
		must("after the fault", r.then(ctx, c))
	}
	stop()
	must("after the fault", run.Stop(ctx))
	checked, err := run.Check(ctx)
	must("check", err)
	for _, violation := range checked.Violations {
		t.Errorf("violation: %s", violation)
	}

	out := &result{
		Name: r.name, Fault: r.fault, Errors: checked.Failures, Violations: len(checked.Violations), Note: note,
		Longest: checked.Unavailable.Seconds(), Delivery: delivery.longest().Seconds(), Search: searches.longest().Seconds(),
	}
	out.Duration = ended.Sub(begun).Seconds()
	for _, n := range checked.Operations {
		out.Calls += n
	}
	for _, n := range checked.Failures {
		out.Failed += n
	}
	recovered := max(delivery.recovered(begun, ended, r.outage), searches.recovered(begun, ended, r.outage))
	for _, mark := range checked.Marks {
		if mark.Name == "end" || mark.Name == "begin" && !r.outage {
			recovered = max(recovered, mark.Recovered)
		}
	}
	out.Recovery = recovered.Seconds()
	t.Logf("%s\nfault %s, marks %+v, %d acknowledged, %d events, %d resumes, %d relists", strings.Join(out.cells(), " | "),
		ended.Sub(begun).Round(time.Millisecond), checked.Marks, checked.Acknowledged, checked.Events, checked.Resumes, checked.Relists)
	for _, text := range slices.Sorted(maps.Keys(checked.Failures)) {
		t.Logf("%5d %s", checked.Failures[text], text)
	}
	return out
}

// longest returns the maximum duration of the fault of a row.
func (c *campaign) longest(r *row) time.Duration {
	if strings.HasPrefix(r.name, "random") {
		return c.random + patience
	}
	return c.outage + 4*c.pause + time.Minute
}

// healthy waits until each part works, so that each row begins in the same state.
func (c *campaign) healthy(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := c.whole(ctx); err != nil {
		t.Fatalf("the hub is not whole: %v", err)
	}
}

func (c *campaign) whole(ctx context.Context) error {
	return await.Poll(ctx, func(ctx context.Context) error {
		for _, member := range c.Etcd.Members {
			if err := member.Ready(ctx); err != nil {
				return err
			}
		}
		for _, process := range append(c.Hub.Processes(), c.Members[0].Processes()...) {
			if err := process.Ready(ctx); err != nil {
				return fmt.Errorf("%s: %w", process.Name, err)
			}
		}
		if err := c.Ready(ctx); err != nil {
			return err
		}
		return c.Members[0].Agent.Ready(ctx)
	})
}
