package bench_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	rbacv1 "k8s.io/api/rbac/v1"

	"open-cluster-management.io/hub-apiserver/test/browser"
	"open-cluster-management.io/hub-apiserver/test/fleetgen"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	// firstLoads is the number of loads of the page with an empty cache.
	firstLoads = 20
	// graphPods is the number of Pods in the related graph, which also contains a Deployment, a ReplicaSet and a Node.
	graphPods = 497
	// changeRate is the number of changed resources per second while the page shows live updates.
	changeRate = 100
)

// typed are the queries that are typed, key by key.
var typed = []string{"kind:Pod status!=Running", "kind:Deployment available<1", "payments", "kind:Node role:worker", "namespace:kube-system coredns"}

// recorder measures the time from a key until the results of the query are painted. Keys that change no result are not
// measured: those that complete a query with an error, and spaces at the end.
const recorder = `(() => {
	window.keys = [];
	let began = 0, stale = false;
	performance.setResourceTimingBufferSize(100_000);
	const results = () => document.querySelector(".results");
	document.getElementById("search").addEventListener("input", () => { began = performance.now(); stale = false; }, true);
	new MutationObserver(() => {
		if (!began || !results()) return;
		if (results().classList.contains("stale")) { stale = true; return; }
		if (!stale) return;
		const since = began;
		began = 0;
		requestAnimationFrame(() => { const {port1, port2} = new MessageChannel(); port1.onmessage = () => {
			const searches = performance.getEntriesByType("resource").filter(({name, startTime}) => startTime >= since && name.endsWith("/searches"));
			window.keys.push({Query: document.getElementById("search").value, Painted: performance.now() - since, Searched: searches.reduce((sum, {duration}) => sum + duration, 0)});
		}; port2.postMessage(0); });
	}).observe(document.body, {subtree: true, childList: true, attributes: true, attributeFilter: ["class"]});
	return true;
})()`

// typedKey is a key with the query that it completes, and the times in ms until the results are painted and in which the
// page waits for searches.
type typedKey struct {
	Query             string
	Painted, Searched float64
}

// BenchmarkConsole measures the page of the console in Chromium, through clusteradm console and the hub: its first load,
// queries that an administrator types and that a user who may view a fifth of the clusters types, a related graph, and the
// memory of the page while resources change for CONSOLE_SECONDS.
func BenchmarkConsole(b *testing.B) {
	h := startHTTPFleet(b)
	page := h.openConsole(b, h.Hub.WriteAdminKubeconfig)
	restricted := h.openConsole(b, func(path string) error { return h.Hub.WriteKubeconfig(path, h.viewer(b)) })
	for range b.N {
		measureFirstLoads(b, page)
		measureTyping(b, page, "an administrator", "key")
		measureTyping(b, restricted, "a user with a fifth of the clusters", "viewer-key")
		h.measureGraph(b, page)
		h.measureLive(b, page)
	}
}

// viewer returns a user who may use the console and view a fifth of the clusters.
func (h *httpFleet) viewer(b *testing.B) string {
	b.Helper()
	const name = "viewer"
	subject := rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}
	apply(b, h.Fleet, allow(b, name, searchUse, subject, fleetgen.Policy(1, max(1, h.options.Clusters/5), 50)),
		allow(b, "console-"+name, "open-cluster-management:console:use", subject, ""))
	return name
}

// openConsole runs clusteradm console until the end of the benchmark, and returns the URL of the page.
func (h *httpFleet) openConsole(b *testing.B, write func(path string) error) string {
	b.Helper()
	kubeconfig := filepath.Join(b.TempDir(), "kubeconfig")
	if err := write(kubeconfig); err != nil {
		b.Fatal(err)
	}
	path, err := localhub.Binary(localhub.BinDir(), "clusteradm")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, path, "console", "--no-browser")
	command.Env = append(command.Environ(), "KUBECONFIG="+kubeconfig)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = stopTimeout
	b.Cleanup(cancel)
	out, err := command.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		cancel()
		_ = command.Wait()
	})
	limit := time.AfterFunc(startTimeout, cancel)
	defer limit.Stop()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	first := browser.Open(b, strings.TrimSpace(line))
	first.Await("combobox", "Search the fleet")
	return first.Location()
}

func milliseconds(of []float64) []time.Duration {
	out := make([]time.Duration, 0, len(of))
	for _, ms := range of {
		out = append(out, time.Duration(ms*float64(time.Millisecond)))
	}
	return out
}

func measureFirstLoads(b *testing.B, page string) {
	b.Helper()
	var took []float64
	var bytes float64
	for range firstLoads {
		p := browser.Open(b, page)
		p.AwaitText("Examples")
		took = append(took, browser.Evaluate[float64](p, `new Promise((resolve) => {
			let painted = 0;
			new PerformanceObserver((list) => { for (const entry of list.getEntries()) painted = entry.startTime; }).observe({type: "largest-contentful-paint", buffered: true});
			setTimeout(() => resolve(painted), 1000);
		})`))
		bytes = browser.Evaluate[float64](p, `[...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
			.filter((entry) => /\.(html|js|css|svg)$/.test(new URL(entry.name).pathname)).reduce((sum, entry) => sum + entry.encodedBodySize, 0)`)
		p.Close()
	}
	report(b, "first load until the largest element is painted", "load", milliseconds(took))
	fmt.Printf("  %.0f KB compressed\n", bytes/1000)
}

func measureTyping(b *testing.B, page, who, metric string) {
	b.Helper()
	p := browser.Open(b, page)
	defer p.Close()
	p.AwaitText("Examples")
	browser.Evaluate[bool](p, recorder)
	pressed := 0
	for _, query := range typed {
		p.Fill("combobox", "Search the fleet", "")
		settle(b, p)
		for _, key := range query {
			p.Press(string(key))
			pressed++
			settle(b, p)
		}
		p.Press(kb.Escape)
	}
	keys := browser.Evaluate[[]typedKey](p, `window.keys`)
	var painted, searched []float64
	for _, key := range keys {
		painted, searched = append(painted, key.Painted), append(searched, key.Searched)
	}
	took, waited := milliseconds(painted), milliseconds(searched)
	slices.Sort(waited)
	report(b, fmt.Sprintf("key of %s until results are painted, of %d keys", who, pressed), metric, took)
	b.ReportMetric(percentile(took, 95).Seconds()*1000, metric+"-p95-ms")
	fmt.Printf("  p95 %.1f ms; until the searches are answered: p50 %.1f ms p95 %.1f ms\n", percentile(took, 95).Seconds()*1000,
		percentile(waited, 50).Seconds()*1000, percentile(waited, 95).Seconds()*1000)
	slices.SortFunc(keys, func(a, b typedKey) int { return cmp.Compare(b.Painted, a.Painted) })
	for _, key := range keys[:min(8, len(keys))] {
		fmt.Printf("  slow key: %q %.1f ms, of which %.1f ms for searches\n", key.Query, key.Painted, key.Searched)
	}
}

// settle waits until the page has searched for what is typed, or will not.
func settle(b *testing.B, p *browser.Page) {
	b.Helper()
	browser.Evaluate[bool](p, `new Promise((resolve) => {
		const began = performance.now();
		let quiet = began;
		const look = () => {
			if (document.querySelector(".results.stale")) quiet = performance.now();
			if (performance.now() - quiet > 600 || performance.now() - began > 10_000) resolve(true);
			else setTimeout(look, 20);
		};
		look();
	})`)
}

func (h *httpFleet) measureGraph(b *testing.B, page string) {
	b.Helper()
	cluster := fleetgen.ClusterName(1)
	body, err := json.Marshal(fleetgen.Workload(cluster, graphPods))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := h.send(b.Context(), cluster, body, false); err != nil {
		b.Fatal(err)
	}
	var took []float64
	for range firstLoads {
		p := browser.Open(b, page)
		p.AwaitText("Examples")
		browser.Evaluate[string](p, fmt.Sprintf("location.hash = %q", "#/resource?group=apps&kind=Deployment&namespace=shop&name=web&cluster="+cluster))
		p.Await("button", "Show graph")
		took = append(took, browser.Evaluate[float64](p, fmt.Sprintf(`new Promise((resolve) => {
			const began = performance.now();
			const look = () => {
				if (document.querySelectorAll(".node").length >= %d) requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - began)));
				else requestAnimationFrame(look);
			};
			[...document.querySelectorAll("button")].find((button) => button.textContent.includes("Show graph")).click();
			look();
		})`, graphPods+3)))
		p.Close()
	}
	report(b, fmt.Sprintf("related graph of %d nodes", graphPods+3), "graph", milliseconds(took))
}

// measureLive shows Pods while they change, and prints the memory of the page.
func (h *httpFleet) measureLive(b *testing.B, page string) {
	b.Helper()
	duration := time.Duration(number(b, "CONSOLE_SECONDS", 60)) * time.Second
	p := browser.Open(b, page)
	defer p.Close()
	p.Fill("combobox", "Search the fleet", "kind:Pod cluster:"+h.pods[0].Cluster)
	p.AwaitText("resources")
	settle(b, p)
	before := p.HeapBytes()
	r := rand.New(rand.NewPCG(7, 7))
	ticker := time.NewTicker(time.Second / 10)
	defer ticker.Stop()
	changes, most := 0, before
	for began := time.Now(); time.Since(began) < duration; <-ticker.C {
		update := fleetgen.Update(r, h.pods[0], changeRate/10)
		if _, err := h.sync(b.Context(), &update, false); err != nil {
			b.Fatal(err)
		}
		if changes += len(update.Put); changes%(changeRate*10) == 0 {
			most = max(most, p.HeapBytes())
		}
	}
	after := p.HeapBytes()
	b.ReportMetric((after-before)/1e6, "live-growth-MB")
	fmt.Printf("live updates, %d changes in %s: JavaScript heap %.1f MB before, at most %.1f MB, %.1f MB after\n", changes, duration, before/1e6, most/1e6, after/1e6)
}
