package console

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/test/browser"
	"open-cluster-management.io/hub-apiserver/test/fleetgen"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const searchBox = "Search the fleet"

// reports sends a full report of a cluster.
func reports(t *testing.T, f *framework.Fleet, cluster string, report inventory.Sync) {
	t.Helper()
	framework.Eventually(t, "the report of "+cluster+" is accepted", func(ctx context.Context) error {
		return f.OCM.SearchV1alpha1().RESTClient().Post().AbsPath(api+"/namespaces/"+cluster+"/inventories/"+cluster+"/sync").
			SetHeader("Content-Type", "application/json").SetHeader(inventory.OverwriteHeader, "true").Body([]byte(framework.ToJSON(report))).Do(ctx).Error()
	})
}

// show shows another view of the page.
func show(t *testing.T, p *browser.Page, hash string) {
	t.Helper()
	browser.Evaluate[string](p, fmt.Sprintf("location.hash = %q", hash))
}

func open(t *testing.T, caller *framework.Caller) *browser.Page {
	t.Helper()
	p := browser.Open(t, openConsole(t, caller).first)
	rendered(t, p)
	return p
}

// becomes waits until an expression in the page has a value.
func becomes[T comparable](t *testing.T, p *browser.Page, expression string, want T) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("%s is %v", expression, want), func(context.Context) error {
		if got := browser.Evaluate[T](p, expression); got != want {
			return fmt.Errorf("it is %v", got)
		}
		return nil
	})
}

func TestSearchView(t *testing.T) {
	f := framework.Shared(t)
	cluster := f.SilentCluster(t)
	reports(t, f, cluster, fleetgen.Workload(cluster, 60))
	p := open(t, administrator(t, f))

	p.Fill("combobox", searchBox, "cluster:"+cluster)
	p.AwaitText("64 resources of 5 kinds")
	p.Await("link", "Show all 60 of Pod")
	p.WantAccessible()

	p.Fill("combobox", searchBox, "cluster:"+cluster+" kind:Po")
	becomes(t, p, `document.querySelector("[role=option] bdi")?.textContent ?? ""`, "Pod")
	p.Press(kb.ArrowDown + kb.Enter)
	becomes(t, p, `document.getElementById("search").value`, "cluster:"+cluster+" kind:Pod")
	p.AwaitText("Page 1 of 2")
	p.Click("button", "Next")
	p.AwaitText("Page 2 of 2")
	becomes(t, p, `document.querySelectorAll("tbody a").length`, 10)
	becomes(t, p, `new URLSearchParams(location.hash.split("?")[1]).get("q")`, "cluster:"+cluster+" kind:Pod")

	p.Fill("combobox", searchBox, "restarts=>3")
	p.AwaitText("Position 9: unknown operator =>")
	p.AwaitText("Did you mean restarts>=3?")
	p.AwaitText("Results of the previous query")
	p.WantAccessible()

	p.Fill("combobox", searchBox, "kind:Pod cluster:"+cluster+" restarts>57")
	p.AwaitText("2 resources")
	p.Press(kb.Enter)
	becomes(t, p, `document.activeElement.textContent`, "web-1-58")
	p.Press(kb.ArrowDown + kb.Enter)
	p.Await("heading", "Pod web-1-59")
	p.Press(kb.Escape)
	becomes(t, p, `document.getElementById("search")?.value ?? ""`, "kind:Pod cluster:"+cluster+" restarts>57")

	p.Click("button", "Export …")
	p.AwaitText("clusteradm search kind:Pod cluster:" + cluster + " 'restarts>57'")
	p.WantAccessible()
	p.WantQuiet()
}

func TestLiveUpdates(t *testing.T) {
	f := framework.Shared(t)
	cluster := f.SilentCluster(t)
	reports(t, f, cluster, fleetgen.Workload(cluster, 3))
	p := open(t, administrator(t, f))
	p.Fill("combobox", searchBox, "kind:Pod cluster:"+cluster)
	p.AwaitText("3 resources")
	reports(t, f, cluster, fleetgen.Workload(cluster, 5))
	p.AwaitText("5 resources")
	p.Await("link", "web-1-4")
	reports(t, f, cluster, fleetgen.Workload(cluster, 51))
	p.AwaitText("51 resources")
	p.Click("button", "Next")
	p.AwaitText("Page 2 of 2")
	// The second page disappears.
	reports(t, f, cluster, fleetgen.Workload(cluster, 50))
	p.AwaitText("50 resources")
	becomes(t, p, `document.querySelectorAll("tbody a").length`, 50)
	reports(t, f, cluster, fleetgen.Workload(cluster, 2))
	p.AwaitText("2 resources")
	show(t, p, "#/search?page=9&q=kind%3APod%20cluster%3A"+cluster)
	p.Await("link", "web-1-1")
	p.WantQuiet()
}

func TestGraph(t *testing.T) {
	f := framework.Shared(t)
	cluster := f.SilentCluster(t)
	reports(t, f, cluster, fleetgen.Workload(cluster, 20))
	p := open(t, administrator(t, f))
	show(t, p, "#/resource?group=apps&kind=Deployment&namespace=shop&name=web&cluster="+cluster)
	p.Click("button", "Show graph")
	p.Await("button", "Deployment web")
	p.WantAccessible()
	browser.Evaluate[bool](p, `(document.querySelector(".node.root").focus(), true)`)
	p.Press(kb.ArrowRight)
	becomes(t, p, `document.activeElement.getAttribute("aria-label")`, "ReplicaSet web-1")
	p.Press(kb.ArrowRight)
	becomes(t, p, `document.activeElement.getAttribute("aria-label").startsWith("Pod")`, true)
	p.AwaitText("runs on Node worker")
	// The selected resource disappears, and the graph has as many resources as before.
	browser.Evaluate[bool](p, `(document.querySelector("[data-uid$='/pod-19']").focus(), true)`)
	p.Press(" ")
	p.AwaitText("Pod web-1-19")
	report := fleetgen.Workload(cluster, 19)
	report.AddResources = append(report.AddResources, fleetgen.Resource(cluster, "job", fleetgen.Properties{"kind": "Job", "name": "extra", "namespace": "shop"}))
	report.AddEdges = append(report.AddEdges, inventory.Edge{SourceUID: cluster + "/job", SourceKind: "Job", DestUID: cluster + "/deployment", DestKind: "Deployment", EdgeType: "ownedBy"})
	reports(t, f, cluster, report)
	p.Await("button", "Job extra")
	browser.Evaluate[bool](p, `(document.querySelector("[data-uid$='/pod-1']").focus(), true)`)
	p.Press(kb.Enter)
	becomes(t, p, `document.querySelector("h1").textContent.trim().startsWith("Pod")`, true)
	p.WantQuiet()
}

// TestHostileNames checks that texts of clusters stay texts in all views.
func TestHostileNames(t *testing.T) {
	f := framework.Shared(t)
	cluster := f.SilentCluster(t)
	names := []string{`<img src=x onerror="window.ran=true">`, "javascript:alert(1)", "\u202etxt.exe", strings.Repeat("long", 2560), `"><script>window.ran=true</script>`, "a\nb\x1b[31m",
		"--server=https://attacker.example", "x;=cmd|'/C calc'!A0", "\n=1+1", `x;"=1+1`}
	var report inventory.Sync
	for i, name := range names {
		report.AddResources = append(report.AddResources, fleetgen.Resource(cluster, fmt.Sprintf("hostile-%d", i), fleetgen.Properties{
			"kind": "Widget", "kind_plural": "--insecure-skip-tls-verify=true", "apigroup": "example.com", "name": name, "namespace": name, "status": name, "link": name, "label": map[string]string{"text": name},
		}))
	}
	members := []string{"constructor", "toString", "__proto__"}
	for i, kind := range members {
		for j, own := range []fleetgen.Properties{{"constructor": "own-value"}, {"valueOf": "other-value"}} {
			maps.Copy(own, fleetgen.Properties{"kind": kind, "kind_plural": kind, "name": fmt.Sprintf("member-%d-%d", i, j), "label": map[string]string{"__proto__": "x"}})
			report.AddResources = append(report.AddResources, fleetgen.Resource(cluster, fmt.Sprintf("member-%d-%d", i, j), own))
		}
	}
	reports(t, f, cluster, report)
	p := open(t, administrator(t, f))
	p.Fill("combobox", searchBox, "kind:Widget cluster:"+cluster)
	p.AwaitText(fmt.Sprintf("%d resources", len(names)))
	p.AwaitText(names[0])
	p.AwaitText(`\u202etxt.exe`)
	p.AwaitText(`a\nb\u001b[31m`)
	p.WantAccessible()
	check := func(where string) {
		t.Helper()
		if got := browser.Evaluate[bool](p, `window.ran === true`); got {
			t.Errorf("%s runs a text of a cluster as a script", where)
		}
		if got := browser.Evaluate[int](p, `[...document.querySelectorAll("#app img, #app script, #app iframe, #app style")].length`); got != 0 {
			t.Errorf("%s has %d elements from texts, want none", where, got)
		}
		if got := browser.Evaluate[string](p, `[...document.querySelectorAll("#app a")].map((a) => a.getAttribute("href")).find((href) => !href.startsWith("#")) ?? ""`); got != "" {
			t.Errorf("%s has a link to %q, want links inside of the page only", where, got)
		}
		if got := browser.Evaluate[int](p, `Math.max(...[...document.querySelectorAll("td, th")].map((cell) => cell.textContent.length), 0)`); got > 200 {
			t.Errorf("%s has a cell of %d characters, want at most 200", where, got)
		}
	}
	check("the search")
	for i := range names {
		show(t, p, "#/search?q=kind%3AWidget%20cluster%3A"+cluster)
		becomes(t, p, `document.querySelectorAll("tbody a.row").length`, len(names))
		browser.Evaluate[bool](p, fmt.Sprintf(`(document.querySelectorAll("tbody a.row")[%d].click(), true)`, i))
		p.AwaitText("Read it with kubectl")
		check(fmt.Sprintf("resource %d", i))
	}
	show(t, p, "#/resource?kind=Widget&group=example.com&name=--server%3Dhttps%3A%2F%2Fattacker.example&namespace=--server%3Dhttps%3A%2F%2Fattacker.example&cluster="+cluster)
	p.AwaitText("-o yaml -- --insecure-skip-tls-verify=true.example.com --server=https://attacker.example")

	for i, kind := range members {
		p = open(t, administrator(t, f))
		show(t, p, "#/"+kind)
		becomes(t, p, `document.title`, "Search – Fleet console")
		show(t, p, "#/access/"+kind)
		p.AwaitText("On which clusters is a request allowed?")
		show(t, p, "#/search?q=kind%3A"+kind+"%20cluster%3A"+cluster)
		p.AwaitText("own-value")
		p.AwaitText(fmt.Sprintf("member-%d-1", i))
		if strings.Contains(p.Text(), "native code") {
			t.Errorf("the table of the kind %s contains members of Object: %s", kind, p.Text())
		}
		show(t, p, fmt.Sprintf("#/resource?kind=%s&name=member-%d-0&cluster=%s", kind, i, cluster))
		p.AwaitText("Read it with kubectl")
		p.WantQuiet()
	}

	// No random part of a name contains a vowel.
	show(t, p, "#/search?q=cluster%3A"+cluster+"%20-aa&sort=name")
	p.AwaitText("No resources found")
	p.Click("button", "Export …")
	p.AwaitText("clusteradm search -o json --order-by name -- cluster:" + cluster + " -aa")
	p.Press(kb.Escape)
	show(t, p, "#/search?q=cluster%3A"+cluster)
	p.AwaitText(fmt.Sprintf("%d resources", len(report.AddResources)+1))
	p.Click("button", "Export …")
	browser.Evaluate[bool](p, `(HTMLAnchorElement.prototype.click = () => {}, URL.createObjectURL = (file) => { window.file = file; return "#"; }, true)`)
	p.Click("button", "CSV")
	becomes(t, p, `Boolean(window.file)`, true)
	file := browser.Evaluate[string](p, `window.file.text()`)
	for _, want := range []string{`"x;'=cmd|'/C calc'!A0"`, "\"'\n'=1+1\"", `"x;'""=1+1"`, "'--server=https://attacker.example", "own-value"} {
		if !strings.Contains(file, want) {
			t.Errorf("the CSV file does not contain %q: %q", want, file)
		}
	}
	if strings.Contains(file, "native code") {
		t.Errorf("the CSV file contains members of Object: %q", file)
	}
	p.WantQuiet()
}

// TestViewerSeesOneCluster checks that the page of a user who may view one cluster names no other one.
func TestViewerSeesOneCluster(t *testing.T) {
	f := framework.Shared(t)
	hidden := f.SilentCluster(t)
	reports(t, f, hidden, fleetgen.Workload(hidden, 2))
	p := open(t, viewer(t, f))
	for hash, text := range map[string]string{
		"#/search?q=kind%3ANamespace": "kube-system",
		"#/search?q=" + "web":         "No resources found",
		"#/fleet":                     framework.Cluster1,
		"#/access/can-i?verb=get&resource=pods&ask=yes":                             framework.Cluster1,
		"#/access/who-can?verb=get&resource=pods&ask=yes":                           "You are not allowed to see the permissions of others",
		"#/access/subject?subject=alice&ask=yes":                                    "You are not allowed to see the permissions of others",
		"#/access/approvals":                                                        "You are not allowed to see ClusterPermissions",
		"#/resource?cluster=" + framework.Cluster1 + "&kind=Namespace&name=default": "Read it with kubectl",
	} {
		show(t, p, hash)
		p.AwaitText(text)
		p.WantAccessible()
		if html := p.HTML(); strings.Contains(html, hidden) {
			t.Errorf("%s contains the name of a cluster that the user may not view: %s", hash, html)
		}
	}
	// The response to a search has arrived when the page shows its result, but the browser can report its end later.
	framework.Eventually(t, "the bodies of the searches are complete", func(context.Context) error {
		for _, request := range p.Requests() {
			if strings.HasSuffix(request.URL, api+"/searches") && request.Status == http.StatusCreated && !request.Finished {
				return fmt.Errorf("that of %s is not", request.URL)
			}
		}
		return nil
	})
	searches := 0
	for _, request := range p.Requests() {
		if strings.Contains(request.URL, hidden) {
			t.Errorf("request to %s contains the name of a cluster that the user may not view", request.URL)
		}
		if !request.Finished || request.Status == 0 {
			continue
		}
		body := p.Body(request)
		if strings.HasSuffix(request.URL, api+"/searches") && strings.Contains(body, `"count":`) {
			searches++
		}
		if strings.Contains(body, hidden) {
			t.Errorf("the response to %s %s contains the name of a cluster that the user may not view: %s", request.Method, request.URL, body)
		}
	}
	if searches == 0 {
		t.Error("the page has received no result of a search, want some")
	}
	p.WantQuiet()
}

// findPods searches for the Pods of a cluster until the page shows them, because the server may not know the permission yet.
func findPods(t *testing.T, p *browser.Page, cluster string) {
	t.Helper()
	framework.Eventually(t, "the Pods are found", func(context.Context) error {
		p.Fill("combobox", searchBox, "")
		p.Fill("combobox", searchBox, "kind:Pod cluster:"+cluster)
		p.AwaitText("resources")
		if !strings.Contains(p.Text(), "web-1-2") {
			return errors.New("they are not shown")
		}
		return nil
	})
}

// TestRevokedWhileShown checks that results disappear when the permission is revoked.
func TestRevokedWhileShown(t *testing.T) {
	f := framework.Shared(t)
	cluster := f.SilentCluster(t)
	reports(t, f, cluster, fleetgen.Workload(cluster, 3))
	caller := viewer(t, f)
	revoke := caller.Bind(t, cluster, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: viewRole})
	p := open(t, caller)
	findPods(t, p, cluster)
	revoke()
	p.AwaitText("No resources found")
	if html := p.HTML(); strings.Contains(html, "web-1-") {
		t.Errorf("the page still contains a resource after the permission is revoked: %s", html)
	}
	p.WantQuiet()
}

// TestRevokedWithoutLiveUpdates checks that results disappear with the next search, and when the page becomes visible, after
// the permission is revoked.
func TestRevokedWithoutLiveUpdates(t *testing.T) {
	f := framework.Shared(t)
	cluster := f.SilentCluster(t)
	reports(t, f, cluster, fleetgen.Workload(cluster, 3))
	caller := viewer(t, f)
	for what, search := range map[string]func(*browser.Page){
		"the next search": func(p *browser.Page) {
			p.Fill("combobox", searchBox, "")
			p.Fill("combobox", searchBox, "kind:Pod cluster:"+cluster)
		},
		"a page that becomes visible": func(p *browser.Page) {
			browser.Evaluate[bool](p, `document.dispatchEvent(new Event("visibilitychange"))`)
		},
	} {
		t.Run(what, func(t *testing.T) {
			revoke := caller.Bind(t, cluster, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: viewRole})
			p := open(t, caller)
			show(t, p, "#/search?live=off&q=kind%3APod%20cluster%3A"+cluster)
			framework.Eventually(t, "the Pods are found", func(context.Context) error {
				search(p)
				p.AwaitText("resources")
				if !strings.Contains(p.Text(), "web-1-2") {
					return errors.New("they are not shown")
				}
				return nil
			})
			revoke()
			framework.Eventually(t, "the Pods are no longer found", func(context.Context) error {
				search(p)
				p.AwaitText("resources")
				if strings.Contains(p.HTML(), "web-1-") {
					return errors.New("they are shown")
				}
				return nil
			})
			for _, request := range p.Requests() {
				if strings.Contains(request.URL, "watch=1") {
					t.Errorf("request to %s, want no watch without live updates", request.URL)
				}
			}
			p.WantQuiet()
		})
	}
}

// TestWatchRefused checks that the page searches regularly if the server refuses its watch.
func TestWatchRefused(t *testing.T) {
	t.Parallel()
	f := framework.OwnFleet(t, localhub.FleetOptions{APIServerArgs: []string{"--max-watches-per-caller=1"}})
	cluster := f.SilentCluster(t)
	reports(t, f, cluster, fleetgen.Workload(cluster, 3))
	// Administrators have no limit.
	caller := viewerOf(t, f, cluster)
	held := framework.Must(caller.OCM.SearchV1alpha1().FleetResources(cluster).Watch(t.Context(), metav1.ListOptions{}))(t)
	t.Cleanup(held.Stop)
	p := open(t, caller)
	findPods(t, p, cluster)
	p.AwaitText("refreshed every 10 s")
	reports(t, f, cluster, fleetgen.Workload(cluster, 5))
	p.AwaitText("5 resources")
	p.Await("link", "web-1-4")
	if !slices.ContainsFunc(p.Requests(), func(r browser.Request) bool {
		return strings.Contains(r.URL, "watch=1") && r.Status == http.StatusTooManyRequests
	}) {
		t.Errorf("requests = %v, want a watch that is refused with 429", p.Requests())
	}
	p.WantQuiet()
}

// TestHubAway checks that the page keeps its state while the hub does not respond, and continues.
func TestHubAway(t *testing.T) {
	f := framework.Shared(t)
	cluster := f.SilentCluster(t)
	reports(t, f, cluster, fleetgen.Workload(cluster, 3))
	caller := administrator(t, f)
	proxy := start(t, caller, "kubectl", "proxy", "--port=0")
	_, port, _ := strings.Cut(proxy.first, "127.0.0.1:")
	p := browser.Open(t, "http://127.0.0.1:"+port+consolePath+"index.html#/search?q=kind%3APod%20cluster%3A"+cluster)
	p.AwaitText("3 resources")
	_ = proxy.stop()
	p.Fill("combobox", searchBox, "kind:Node cluster:"+cluster)
	p.AwaitText("No connection.")
	p.Await("link", "web-1-2")
	start(t, caller, "kubectl", "proxy", "--port="+port)
	p.Await("link", "worker")
	becomes(t, p, `document.querySelector(".connection").innerText.includes("No connection")`, false)
}

func TestAcceptCluster(t *testing.T) {
	f := framework.Shared(t)
	clusters := f.OCM.ClusterV1().ManagedClusters()
	waiting := framework.Must(clusters.Create(t.Context(), &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: framework.Unique("waiting")}}, metav1.CreateOptions{}))(t).Name
	t.Cleanup(func() { _ = clusters.Delete(context.WithoutCancel(t.Context()), waiting, metav1.DeleteOptions{}) })
	p := open(t, administrator(t, f))
	show(t, p, "#/fleet")
	p.Await("button", "Accept … "+waiting)
	p.Click("button", "Accept … "+waiting)
	p.AwaitText("gets access to the objects of this cluster on the hub")
	p.WantAccessible()
	p.Click("button", "Accept "+waiting)
	p.AwaitText(waiting + " is accepted.")
	if got := framework.Must(clusters.Get(t.Context(), waiting, metav1.GetOptions{}))(t); !got.Spec.HubAcceptsClient {
		t.Errorf("hubAcceptsClient of %s = false, want true", waiting)
	}
	p.WantQuiet()
}

// TestApprovePermission approves a ClusterPermission that waits, after the page has shown what it grants.
func TestApprovePermission(t *testing.T) {
	t.Parallel()
	f := framework.OwnFleet(t, localhub.FleetOptions{Clusters: []string{framework.Cluster1}, APIServerArgs: []string{"--clusterpermission-escalation-check=Approve"}})
	author := framework.NewCaller(t, f.Hub, framework.Unique("author")).IsAdmin(t)
	name := framework.Unique("asks")
	permission := framework.Permission(name)
	(*permission.Spec.Roles)[0].Rules = []rbacv1.PolicyRule{{APIGroups: []string{"apps"}, Resources: []string{"secrets", "deployments"}, Verbs: []string{"get"}}}
	framework.CreatePermission(t, author.OCM, permission)
	p := open(t, administrator(t, f))
	show(t, p, "#/access/approvals")
	p.AwaitText("requested by " + author.Name)
	p.Click("button", "Show what it would grant for "+name+" on "+framework.Cluster1)
	p.AwaitText("Role " + name + " in namespace default allows to get secrets and deployments of apps")
	p.AwaitText("User alice gets the ClusterRole " + name + " in all namespaces")
	p.WantAccessible()
	p.Click("button", "Approve generation 1 of "+name+" on "+framework.Cluster1)
	p.AwaitText(framework.Cluster1 + "/" + name + " is approved.")
	permission = f.PermissionSays(t, framework.Cluster1, name, rbacv1alpha1.ConditionApproved, metav1.ConditionTrue)
	(*permission.Spec.Roles)[0].Rules[0].APIGroups = []string{"", "apps"}
	framework.Must(author.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Update(t.Context(), permission, metav1.UpdateOptions{}))(t)
	p.Click("button", "Show what it would grant for "+name+" on "+framework.Cluster1)
	p.AwaitText("New: Role " + name + " in namespace default allows to get secrets and deployments of the core group and apps")
	p.AwaitText("Removed: Role " + name + " in namespace default allows to get secrets and deployments of apps")
	for _, request := range p.Requests() {
		if request.Status >= http.StatusInternalServerError {
			t.Errorf("%s %s = %d, want no error of the server", request.Method, request.URL, request.Status)
		}
	}
	p.WantQuiet()
}

// TestSizesAndThemes checks that all views fit into narrow and wide windows, and are accessible in both themes.
func TestSizesAndThemes(t *testing.T) {
	f := framework.Shared(t)
	cluster := f.SilentCluster(t)
	reports(t, f, cluster, fleetgen.Workload(cluster, 60))
	p := open(t, administrator(t, f))
	for hash, text := range map[string]string{
		"#/search?q=cluster%3A" + cluster:              "64 resources",
		"#/search?q=kind%3APod%20cluster%3A" + cluster: "Page 1 of 2",
		"#/fleet": cluster,
		"#/access/can-i?verb=get&resource=pods&ask=yes":                                             cluster,
		"#/resource?group=apps&kind=Deployment&namespace=shop&name=web&graph=on&cluster=" + cluster: "Arrow keys walk",
	} {
		show(t, p, hash)
		p.AwaitText(text)
		for _, width := range []int64{320, 3840} {
			p.Resize(width, 900)
			if got := browser.Evaluate[int64](p, `document.documentElement.scrollWidth`); got > width {
				t.Errorf("%s in a window of %d pixels is %d pixels wide", hash, width, got)
			}
		}
		for _, theme := range []string{"dark", "light"} {
			browser.Evaluate[string](p, fmt.Sprintf("document.documentElement.dataset.theme = %q", theme))
			p.WantAccessible()
		}
	}
	p.WantQuiet()
}
