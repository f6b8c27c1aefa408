import {serve} from "./page.js";
import assert from "node:assert/strict";
import {test} from "node:test";

import {graphOf} from "../static/graphdata.js";
import {layout} from "../static/layout.js";

const item = (uid, kind, more = {}) => ({uid, cluster: "c1", properties: {kind, name: uid, namespace: "n", ...more}});
const which = {cluster: "c1", group: "apps", kind: "Deployment", namespace: "n", name: "web"};

test("a graph has at most 1,000 resources, and counts the others", async (t) => {
  const related = [{kind: "Pod", count: 1500, items: Array.from({length: 1200}, (_, i) => item(`p${i}`, "Pod"))}];
  const requests = serve(t, ({object}) => ({status: object.spec.filters.length === 5 ? {items: [item("web", "Deployment")], related} : {related: []}}));
  const {nodes, omitted} = await graphOf(which);
  assert.deepEqual([nodes.size, omitted], [1000, 501]);
  assert.equal(requests[0].object.spec.relatedLimit, 1000);
});

test("edges lead from owners to what they own, and from Pods to what they use", async (t) => {
  serve(t, ({object}) => ({status: object.spec.filters.length === 5
    ? {items: [item("web", "Deployment")], related: [
      {kind: "ReplicaSet", count: 1, items: [item("rs", "ReplicaSet", {_ownerUID: "web"})]}, {kind: "Pod", count: 1, items: [item("pod", "Pod", {_ownerUID: "rs"})]},
    ]}
    : {related: [{kind: "Node", items: [{...item("node", "Node"), relatedTo: ["pod", "other"]}]}, {kind: "Secret", items: [{...item("s", "Secret"), relatedTo: ["pod"]}]}]}}));
  const {edges} = await graphOf(which);
  assert.deepEqual(edges.map(({from, label, to}) => `${from} ${label} ${to}`).sort(), ["pod runs on node", "pod uses s", "web owns rs"]);
  serve(t, () => ({status: {items: []}}));
  assert.equal(await graphOf(which), undefined);
});

test("seven resources of a kind with the same owner form a block", () => {
  const graph = (count) => {
    const nodes = new Map([["web", {uid: "web", kind: "ReplicaSet", name: "web"}]]);
    for (let i = 0; i < count; i++) nodes.set(`p${i}`, {uid: `p${i}`, kind: "Pod", name: `p${i}`, owner: "web"});
    return layout({nodes, edges: [...nodes.keys()].slice(1).map((to) => ({from: "web", to, label: "owns"}))});
  };
  assert.deepEqual([graph(6).blocks.length, graph(6).lines.length], [0, 6]);
  assert.deepEqual([graph(7).blocks.map((b) => [b.kind, b.count]), graph(7).lines.length], [[["Pod", 7]], 1]);
  assert.equal(graph(7).places.size, 8);
});
