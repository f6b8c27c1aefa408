import {serve} from "./page.js";
import assert from "node:assert/strict";
import {execFileSync} from "node:child_process";
import {test} from "node:test";

import {groupsOf, labelSelector, requestCommand, selectionOf, subjectOf} from "../static/access.js";
import {columnsOf, exported, valueOf} from "../static/columns.js";
import {commands, toCSV} from "../static/export.js";
import {find, orderOf, preview} from "../static/find.js";
import {link, resourceLink} from "../static/router.js";
import {ruleText} from "../static/rules.js";
import {Table} from "../static/table.js";

const argv = (text) => execFileSync("bash", ["-c", `printf '%s\\0' ${text}`], {env: {...process.env, LC_ALL: "C.UTF-8"}}).toString().split("\0").slice(0, -1);

test("each line is a group, because names of groups contain commas and spaces", () => {
  assert.deepEqual(groupsOf({groups: " CN=ops,OU=my teams,DC=example \n\r\n\nadmins\r\n"}), ["CN=ops,OU=my teams,DC=example", "admins"]);
  assert.deepEqual(groupsOf({}), []);
  assert.deepEqual(subjectOf({type: "group", subject: " a,b ", groups: "c d"}), {groups: ["a,b", "c d"]});
  assert.deepEqual(subjectOf({subject: "ann", groups: ""}), {user: "ann", groups: undefined});
  assert.deepEqual(subjectOf({type: "serviceaccount", subject: "c1/ns/sa"}), {serviceAccount: {cluster: "c1", namespace: "ns", name: "sa"}});
  assert.deepEqual(subjectOf({type: "serviceaccount", subject: "ns/sa"}), {user: "system:serviceaccount:ns:sa"});
  assert.deepEqual(subjectOf({type: "constructor", subject: "ann"}), {user: "ann", groups: undefined});
});

test("clusters are selected by names, sets and labels", () => {
  assert.deepEqual(selectionOf({clusters: " a, b\nc ", sets: "", selector: undefined}), {names: ["a", "b", "c"], clusterSets: undefined, labelSelector: undefined});
  const {matchLabels, matchExpressions} = labelSelector("env=prod,tier==web region!=eu canary !old __proto__=x");
  assert.deepEqual({...matchLabels}, Object.fromEntries([["env", "prod"], ["tier", "web"], ["__proto__", "x"]]));
  assert.deepEqual(matchExpressions, [{key: "region", operator: "NotIn", values: ["eu"]}, {key: "canary", operator: "Exists"}, {key: "old", operator: "DoesNotExist"}]);
});

test("a command about a request has the values of the form", () => {
  for (const [params, want] of [
    [{verb: "get", resource: "pods"}, ["clusteradm", "auth", "can-i", "-A", "get", "pods"]],
    [{verb: "get", resource: "/healthz"}, ["clusteradm", "auth", "can-i", "get", "/healthz"]],
    [{verb: "get", resource: "pods", namespace: "a b", name: "-x", clusters: "c1,c2", selector: "a=b c"}, ["clusteradm", "auth", "can-i", "-n", "a b", "--cluster", "c1", "--cluster", "c2", "--clusters", "a=b,c", "--", "get", "pods", "-x"]],
    [{verb: "$(reboot)", resource: "a;b"}, ["clusteradm", "auth", "can-i", "-A", "$(reboot)", "a;b"]],
  ]) assert.deepEqual(argv(requestCommand("clusteradm auth can-i", params, [])), want);
});

const item = (properties, cluster = "c1") => ({uid: "u", cluster, properties: {kind: "Pod", name: "web", ...properties}});

test("no cell of a CSV file is a formula", async () => {
  const lines = async (...items) => (await toCSV(items).text()).split("\r\n");
  const cell = async (note) => (await lines(item({kind: undefined, name: undefined, note})))[1].slice("c1,,,,,,".length);
  for (const [value, want] of [
    ["web", "web"], ["a,b", '"a,b"'], ['a"b', '"a""b"'], ["a\nb", '"a\nb"'], ["=1+1", "'=1+1"], ["+1+1", "'+1+1"], ["-cmd", "'-cmd"], ["@x", "'@x"], ["-5", "-5"], ["+1.5", "+1.5"], [7, "7"],
    ["a;=1", "\"a;'=1\""], ["a\t=1", "\"a\t'=1\""], ["a\n=1", "\"a\n'=1\""], ['"=1"', "\"'\"\"=1\"\"\""], ["\t=1", "\"'\t'=1\""], ["a=1", "a=1"], [null, ""], [["x", "=y"], '"x, =y"'],
  ]) assert.equal(await cell(value), want, JSON.stringify(value));
  assert.deepEqual((await lines(item({note: "n", _uid: "hidden", "=x": "1"}), item({other: 2}, "c2"))).map((l) => l.split(",")), [
    ["cluster", "kind", "apigroup", "namespace", "name", "created", "note", "'=x", "other"],
    ["c1", "Pod", "", "", "web", "", "n", "1", ""], ["c2", "Pod", "", "", "web", "", "", "", "2"], [""],
  ]);
});

test("exported commands search what the page searches", () => {
  const of = (state) => Object.fromEntries(Object.entries(commands({query: "", kind: "", sort: "", ...state})).map(([name, text]) => [name, text && argv(text)]));
  assert.deepEqual(of({query: "web kind:Pod status!=Running", sort: "restarts desc"}), {
    clusteradm: ["clusteradm", "search", "--order-by", "restarts desc", "web", "kind:Pod", "status!=Running"],
    json: ["clusteradm", "search", "-o", "json", "--order-by", "restarts desc", "web", "kind:Pod", "status!=Running"],
    kubectl: false,
  });
  assert.deepEqual(of({query: "-o name:$(reboot)", kind: "My Kind"}).clusteradm, ["clusteradm", "search", "--", "-o", "name:$(reboot)", 'kind:"My Kind"']);
  assert.deepEqual(of({query: "label:env=prod status!=Running", kind: "Pod"}).kubectl, ["kubectl", "get", "fr", "-A", "--field-selector", "kind=Pod,status!=Running", "-l", "env in (prod)"]);
});

// find returns the nodes of a rendered tree with a type.
const nodes = (tree, type) => (Array.isArray(tree) ? tree.flatMap((n) => nodes(n, type)) : tree?.props ? [...(tree.type === type ? [tree] : []), ...nodes(tree.props.children, type)] : []);

test("a title of a table sorts, and sorts in reverse", () => {
  const sorted = (order) => {
    const asked = [];
    const columns = [{name: "name", title: "Name", sort: true, render: () => ""}, {name: "cpu", title: "CPU", sort: true, render: () => ""}, {name: "age", title: "Age", render: () => ""}];
    const table = Table({caption: "t", columns, rows: [], keyOf: () => "", order, onSort: (by) => asked.push(by)});
    for (const button of nodes(table, "button")) button.props.onClick();
    return [asked, nodes(table, "th").map((th) => th.props["aria-sort"])];
  };
  assert.deepEqual(sorted(""), [["name", "cpu"], [undefined, undefined, undefined]]);
  assert.deepEqual(sorted("name"), [["name desc", "cpu"], ["ascending", undefined, undefined]]);
  assert.deepEqual(sorted("cpu desc"), [["name", "cpu"], [undefined, "descending", undefined]]);
  assert.deepEqual([orderOf(""), orderOf("name desc"), orderOf("cpu")], [["name", "cluster"], ["name desc", "cluster"], ["cpu", "name"]]);
});

test("names of clusters find no members of Object", () => {
  const hostile = item({kind: "constructor", constructor: "x", toString: "y"});
  assert.deepEqual(columnsOf("constructor", [hostile]).map((c) => c.title), ["Name", "Cluster", "Constructor", "To string", "Age"]);
  assert.equal(valueOf(item({}), "constructor"), undefined);
  assert.ok(!exported([item({})]).includes("constructor"));
});

test("several kinds are the first 5 of each of the first 12, one kind has pages of 50", async (t) => {
  const requests = serve(t, ({object}) => ({status: object.spec.searches ? {results: object.spec.searches.map(() => ({items: [], count: 1}))} : {count: 60, counts: [{value: "Pod", count: 60}], items: []}}));
  const kinds = Array.from({length: 20}, (_, i) => ({kind: `K${i}`}));
  const shown = await preview("web", kinds);
  const {searches} = requests.at(-1).object.spec;
  assert.deepEqual([shown.size, searches.length, [...new Set(searches.map((s) => s.limit))]], [12, 12, [5]]);
  await find({query: "web", kind: "Pod", sort: "", page: 3});
  const [items] = requests.at(-1).object.spec.searches;
  assert.deepEqual([items.limit, items.offset, items.orderBy], [50, 100, ["name", "cluster"]]);
  for (const query of ["kind:Pod", "web kind:Pod"]) {
    requests.length = 0;
    const {kinds: found, total} = await find({query, kind: "", sort: "", page: 1});
    assert.deepEqual([requests.length, found, total], [1, [{kind: "Pod", count: 60}], 60], `a search for ${query} is one request`);
  }
});

test("a link is a saved search", () => {
  assert.equal(link("search", {q: "a b&c", page: "", kind: undefined}), "#/search?q=a+b%26c");
  assert.equal(resourceLink("c1", {kind: "Pod", name: 7, namespace: "n&m"}), "#/resource?cluster=c1&kind=Pod&namespace=n%26m&name=7");
});

test("rules are read as sentences", () => {
  for (const [rule, want] of [
    [{verbs: ["get"], apiGroups: [""], resources: ["pods"]}, "get pods"],
    [{verbs: ["get", "list", "watch"], apiGroups: ["apps", ""], resources: ["*"], resourceNames: ["a"]}, "get, list and watch all resources of apps and the core group with the names a"],
    [{verbs: ["*"], apiGroups: ["*"], resources: ["*"]}, "do everything with all resources of all API groups"],
    [{verbs: ["get"], nonResourceURLs: ["/healthz"]}, "get the paths /healthz"],
  ]) assert.equal(ruleText(rule), want);
});
