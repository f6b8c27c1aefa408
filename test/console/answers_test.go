package console

import (
	"fmt"
	"strings"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/test/browser"
	"open-cluster-management.io/hub-apiserver/test/fleetgen"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// intercept lets a JavaScript function of the URL and the options respond to requests of the page. The hub responds if it
// returns undefined.
func intercept(p *browser.Page, function string) {
	browser.Evaluate[bool](p, fmt.Sprintf(`(() => {
		window.hub ??= window.fetch;
		window.respond = (body, status = 201, headers = {}) => Promise.resolve(new Response(JSON.stringify(body), {status, headers}));
		const function_ = %s;
		window.fetch = (url, options) => function_(String(url), options) ?? window.hub(url, options);
		return true;
	})()`, function))
}

// TestNewQuestion checks that the page never shows the answer to a previous question.
func TestNewQuestion(t *testing.T) {
	p := open(t, administrator(t, framework.Shared(t)))
	intercept(p, `(url, {body} = {}) => {
		if (!url.endsWith("/fleetaccessreviews")) return undefined;
		const {user, continue: token} = JSON.parse(body).spec;
		const page = (n) => respond({status: {clusters: [{cluster: user + "-" + n, reason: "It does not report."}], continue: n === 1 ? "next" : undefined}});
		return user === "alice" && !token ? page(1) : new Promise((done) => { window.release = () => done(page(token ? 2 : 1)); });
	}`)
	show(t, p, "#/access/subject?subject=alice&ask=yes")
	p.AwaitText("alice-1")
	p.Click("button", "Show more clusters")
	becomes(t, p, `[...document.querySelectorAll("button")].find((b) => b.textContent === "Show more clusters").disabled`, true)
	browser.Evaluate[bool](p, `(window.release(), true)`)
	p.AwaitText("alice-2")
	p.Click("button", "Ask")
	becomes(t, p, `document.body.innerText.includes("alice-2")`, false)
	p.AwaitText("alice-1")

	show(t, p, "#/access/subject?subject=bob&type=%3B%0Aid&ask=yes")
	p.AwaitText("clusteradm auth explain user bob")
	p.AwaitText("Loading the answer")
	if strings.Contains(p.Text(), "alice-1") {
		t.Error("the page shows the answer about alice below the question about bob")
	}
	browser.Evaluate[bool](p, `(window.release(), true)`)
	p.AwaitText("bob-1")
	p.WantQuiet()
}

// TestOlderSearch checks that a live update that is tried again does not replace the page that the user has turned to.
func TestOlderSearch(t *testing.T) {
	f := framework.Shared(t)
	cluster := f.SilentCluster(t)
	reports(t, f, cluster, fleetgen.Workload(cluster, 60))
	p := open(t, administrator(t, f))
	show(t, p, "#/search?kind=Pod&q=cluster%3A"+cluster)
	p.AwaitText("Page 1 of 2")
	const retryAfter = 77
	intercept(p, fmt.Sprintf(`(url, {body} = {}) => {
		if (!url.endsWith("/searches")) return undefined;
		if (!window.refused) {
			window.refused = true;
			const after = window.setTimeout;
			window.setTimeout = (run, ms) => (ms === %[1]d * 1000 ? (window.retry = run) : after(run, ms));
			return respond({message: "too many requests"}, 429, {"Retry-After": "%[1]d"});
		}
		if (!JSON.parse(body).spec.searches?.[0].offset) window.first = true;
		return undefined;
	}`, retryAfter))
	reports(t, f, cluster, fleetgen.Workload(cluster, 61))
	becomes(t, p, `Boolean(window.retry)`, true)
	p.Click("button", "Next")
	p.AwaitText("Page 2 of 2")
	becomes(t, p, `document.querySelectorAll("tbody a").length`, 11)
	if browser.Evaluate[bool](p, `(window.retry(), window.first === true)`) {
		t.Error("the page searches for its first page again, want no search after the user has turned to the second one")
	}
	p.WantQuiet()
}

// TestOneAPIUnavailable checks that the page tries less and less often if one API stays unavailable, and recovers.
func TestOneAPIUnavailable(t *testing.T) {
	p := open(t, administrator(t, framework.Shared(t)))
	intercept(p, `(url) => (url.includes("/clusterview") ? respond({}, 503) : undefined)`)
	show(t, p, "#/fleet")
	p.AwaitText("No connection.")
	state := func(expression string) string {
		return `import("./api.js").then(({connection}) => ` + expression + `)`
	}
	becomes(t, p, state(`connection.epoch >= 3`), true)
	if got := browser.Evaluate[string](p, state("connection.failures >= connection.epoch && connection.wake === null ? '' : `${connection.failures} failures, ${connection.epoch} responses`")); got != "" {
		t.Errorf("state of the connection: %s, want a failure for each response, and no shorter delay", got)
	}
	intercept(p, `() => undefined`)
	p.AwaitText(framework.Cluster1)
	becomes(t, p, `document.querySelector(".connection").innerText.includes("No connection")`, false)
	p.WantQuiet()
}

// TestUnreadObjects checks that the page makes no statement about objects that it has not read.
func TestUnreadObjects(t *testing.T) {
	p := open(t, administrator(t, framework.Shared(t)))
	intercept(p, `(url) => (/\/(manifestworks|clusterpermissions)\?limit=/.test(url) ? respond({
		metadata: {continue: "next"}, columnDefinitions: [{name: "Applied"}], rows: [{cells: ["True"], object: {metadata: {name: "a", namespace: "b"}}}],
	}, 200) : undefined)`)
	show(t, p, "#/fleet")
	p.AwaitText("All ManifestWorks that the page has read are applied.")
	p.AwaitText("These are the first 10 ClusterPermissions. There are more, which the page has not read.")
	show(t, p, "#/access/approvals")
	p.AwaitText("No ClusterPermission that the page has read waits for approval.")
	p.AwaitText("These are the first 10 ClusterPermissions. There are more, which the page has not read.")
	p.WantQuiet()
}

// TestDeliveryNamesTheClusterPermission checks that the page names a ClusterPermission only if its status lists the resource:
// the author of a ManifestWork may claim any.
func TestDeliveryNamesTheClusterPermission(t *testing.T) {
	f := framework.Shared(t)
	cluster := f.SilentCluster(t)
	report := inventory.Sync{AddResources: []inventory.Resource{fleetgen.Resource(cluster, "binding", fleetgen.Properties{
		"kind": "RoleBinding", "kind_plural": "rolebindings", "apigroup": "rbac.authorization.k8s.io", "apiversion": "v1", "name": "readers", "namespace": "shop",
	})}}
	for _, work := range []string{"granting", "forged"} {
		report.AddResources = append(report.AddResources, fleetgen.Resource(cluster, work, fleetgen.Properties{
			"kind": "AppliedManifestWork", "kind_plural": "appliedmanifestworks", "apigroup": "work.open-cluster-management.io", "apiversion": "v1", "name": strings.Repeat("a", 64) + "-" + work,
		}))
		report.AddEdges = append(report.AddEdges, inventory.Edge{
			SourceUID: cluster + "/binding", SourceKind: "RoleBinding", DestUID: cluster + "/" + work, DestKind: "AppliedManifestWork", EdgeType: "ownedBy",
		})
	}
	reports(t, f, cluster, report)
	p := open(t, administrator(t, f))
	intercept(p, `(url) => {
		if (url.endsWith("/clusterpermissions/readers-of-shop")) return respond({status: {resourceStatus: {roleBindings: [{name: "readers", namespace: "shop"}]}}});
		if (url.endsWith("/clusterpermissions/innocent")) {
			window.asked = true;
			return respond({status: {resourceStatus: {clusterRoleBindings: [{name: "readers"}], roleBindings: [{name: "readers", namespace: "default"}]}}});
		}
		if (url.endsWith("/manifestworks/granting")) return respond({metadata: {annotations: {"rbac.open-cluster-management.io/clusterpermission": "readers-of-shop"}}});
		if (url.endsWith("/manifestworks/forged")) return respond({metadata: {ownerReferences: [{kind: "ClusterPermission", name: "innocent"}]}});
		return undefined;
	}`)
	show(t, p, "#/resource?kind=RoleBinding&group=rbac.authorization.k8s.io&namespace=shop&name=readers&cluster="+cluster)
	p.AwaitText("rendered from the ClusterPermission readers-of-shop")
	becomes(t, p, `window.asked === true`, true)
	if shown := browser.Evaluate[string](p, `document.getElementById("delivery").parentElement.innerText`); strings.Contains(shown, "innocent") {
		t.Errorf("the page names a ClusterPermission that does not contain the resource, want only readers-of-shop:\n%s", shown)
	}
	p.WantQuiet()
}

// TestViewFails checks that a view that fails does not end the page.
func TestViewFails(t *testing.T) {
	p := open(t, administrator(t, framework.Shared(t)))
	for _, c := range []struct{ role, name, want string }{
		{"button", "Try again", "No resources found"},
		{"link", "Start a new search", "Examples"},
	} {
		intercept(p, `(url) => (url.endsWith("/searches") ? respond({status: {count: 1, counts: [{value: "Broken", count: 1}], items: [{uid: "a/b", cluster: "a"}]}}) : undefined)`)
		p.Fill("combobox", searchBox, "kind:"+framework.Unique("Broken"))
		p.AwaitText("The page cannot show this")
		p.WantAccessible()
		intercept(p, `() => undefined`)
		p.Click(c.role, c.name)
		p.AwaitText(c.want)
	}
}
