package campaign

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/testutil"

	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// resources are the metrics of a process that must not grow. At the end of random faults, at most factor times the
// amount of the first quarter, and slack more, is not a leak.
var resources = [...]struct {
	metric, unit  string
	scale         float64
	factor, slack float64
}{
	{"go_goroutines", "goroutines", 1, 1.2, 20},
	{"process_resident_memory_bytes", "MiB", 1 << 20, 1.3, 64},
	{"process_open_fds", "files", 1, 1.2, 20},
}

const (
	// enough is the minimum duration of random faults from which growth is judged.
	enough = 10 * time.Minute

	servers, agents = "replicas at most", "agent"
)

// amounts are the amounts of the resources, each with the process that holds it.
type amounts [len(resources)]struct {
	value   float64
	process string
}

// growth compares the replicas and the agent with their state in the first quarter of random faults. A process that
// was killed is young and holds less. So growth compares the greatest of the replicas of each time, and the greatest
// of all samples of the first quarter with the last sample.
type growth struct {
	metrics map[string]map[string]rest.Interface // by group and name of the process
	first   map[string]amounts                   // by group
	last    map[string]amounts
}

// newGrowth returns a growth without samples. Its connections stay, so that they do not count as growth.
func newGrowth(c *campaign) (*growth, error) {
	g := &growth{metrics: map[string]map[string]rest.Interface{servers: {}, agents: {}}, first: map[string]amounts{}}
	add := func(group, name string, config *rest.Config) error {
		config.Timeout = 5 * time.Second
		client, err := kubernetes.NewForConfig(config)
		if err == nil {
			g.metrics[group][name] = client.RESTClient()
		}
		return err
	}
	for _, replica := range c.Replicas {
		config, err := replica.UserConfig("campaign", "system:masters")
		if err != nil {
			return nil, err
		}
		if err := add(servers, replica.Name, config); err != nil {
			return nil, err
		}
	}
	agent := c.Members[0].Agent
	address := framework.Argument(c.t, agent.Args, "--health-bind-address=")
	return g, add(agents, agent.Name, &rest.Config{Host: "http://" + address, Dial: c.Nodes["client"].DialContext})
}

// sample reads the metrics of each process. All must be ready.
func (g *growth) sample(ctx context.Context, firstQuarter bool) error {
	return await.Poll(ctx, func(ctx context.Context) error {
		last := map[string]amounts{}
		for group, processes := range g.metrics {
			most := last[group]
			for name, client := range processes {
				content, err := client.Get().AbsPath("/metrics").SetHeader("Accept", "text/plain").DoRaw(ctx)
				if err != nil {
					return fmt.Errorf("metrics of %s: %w", name, err)
				}
				metrics := testutil.NewMetrics()
				if err := testutil.ParseMetrics(string(content), &metrics); err != nil {
					return fmt.Errorf("metrics of %s: %w", name, err)
				}
				for i, r := range resources {
					if len(metrics[r.metric]) != 1 {
						return fmt.Errorf("%s has %d metrics %s, want 1", name, len(metrics[r.metric]), r.metric)
					}
					if value := float64(metrics[r.metric][0].Value) / r.scale; value > most[i].value {
						most[i].value, most[i].process = value, name
					}
				}
			}
			last[group] = most
		}
		g.record(last, firstQuarter)
		return nil
	})
}

func (g *growth) record(last map[string]amounts, firstQuarter bool) {
	g.last = last
	if !firstQuarter {
		return
	}
	for group, now := range last {
		first := g.first[group]
		for i := range first {
			if now[i].value > first[i].value {
				first[i] = now[i]
			}
		}
		g.first[group] = first
	}
}

// check returns an error if a process holds clearly more than in the first quarter.
func (g *growth) check() error {
	for _, group := range []string{servers, agents} {
		for i, r := range resources {
			first, last := g.first[group][i], g.last[group][i]
			if most := r.factor*first.value + r.slack; last.value > most {
				return fmt.Errorf("%s of %s at the end = %.0f, want at most %.0f: in the first quarter, %s had %.0f",
					r.unit, last.process, last.value, most, first.process, first.value)
			}
		}
	}
	return nil
}

// String returns the note of the document.
func (g *growth) String() string {
	var groups []string
	for _, group := range []string{servers, agents} {
		var texts []string
		for i, r := range resources {
			texts = append(texts, fmt.Sprintf("%.0f → %.0f %s", g.first[group][i].value, g.last[group][i].value, r.unit))
		}
		groups = append(groups, group+" "+strings.Join(texts, ", "))
	}
	return strings.Join(groups, "; ")
}

func TestGrowth(t *testing.T) {
	held := func(goroutines, memory, files float64) map[string]amounts {
		return map[string]amounts{servers: {{goroutines, "replica-1"}, {memory, "replica-1"}, {files, "replica-2"}}, agents: {{100, "agent"}, {50, "agent"}, {20, "agent"}}}
	}
	for _, test := range []struct {
		end  map[string]amounts
		want string
	}{
		{end: held(980, 454, 140)},
		{end: held(981, 454, 140), want: "goroutines of replica-1 at the end = 981, want at most 980: in the first quarter, replica-1 had 800"},
		{end: held(980, 455, 140), want: "MiB of replica-1 at the end = 455, want at most 454: in the first quarter, replica-1 had 300"},
		{end: held(980, 454, 141), want: "files of replica-2 at the end = 141, want at most 140: in the first quarter, replica-2 had 100"},
	} {
		g := &growth{first: map[string]amounts{}}
		g.record(held(800, 200, 100), true)
		g.record(held(700, 300, 90), true)
		g.record(test.end, false)
		got := ""
		if err := g.check(); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("check() of %s = %q, want %q", g, got, test.want)
		}
	}
}
