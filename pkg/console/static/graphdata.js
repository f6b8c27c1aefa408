// The graph of a resource: the resources that are related to it, and the ones that its Pods run on and use.

import {related, relatedOf} from "./find.js";

// width and height are the size of a node.
export const width = 200;
export const height = 44;

const maxNodes = 1000;
const maxPods = 300;
// shared are kinds that many workloads use. The graph does not continue after them.
const shared = new Set(["AppliedManifestWork", "Cluster", "ConfigMap", "Namespace", "Node", "PersistentVolume", "Secret", "ServiceAccount", "StorageClass"]);
const used = new Set(["ConfigMap", "PersistentVolumeClaim", "Secret", "ServiceAccount"]);

// nameOf returns the name of a resource. The name of an AppliedManifestWork begins with the hash of the hub.
const nameOf = ({uid, properties: {kind, name}}) => String(name ?? uid).replace(kind === "AppliedManifestWork" ? /^[0-9a-f]{64}-/ : "", "");

const nodeOf = (item) => ({
  uid: item.uid, cluster: item.cluster, properties: item.properties, owner: item.properties._ownerUID,
  kind: String(item.properties.kind ?? ""), name: nameOf(item), status: String(item.properties.status ?? ""),
});

// graphOf returns the nodes and the edges of the graph of a resource, or undefined if the resource does not exist.
export async function graphOf(which, signal) {
  const found = await related(which, maxNodes, signal);
  if (!found) return undefined;
  const root = nodeOf(found.item);
  const nodes = new Map([[root.uid, root]]);
  const pairs = new Map();
  let omitted = 0;
  const add = (item) => {
    if (!nodes.has(item.uid) && nodes.size >= maxNodes) return false;
    if (!nodes.has(item.uid)) nodes.set(item.uid, nodeOf(item));
    return true;
  };
  const join = (a, b) => a !== b && pairs.set(a < b ? `${a}\n${b}` : `${b}\n${a}`, [a, b]);
  for (const {items = [], count} of found.related) {
    omitted += Math.max(0, count - items.length);
    for (const item of items) if (add(item)) join(root.uid, item.uid); else omitted++;
  }
  const pods = [...nodes.values()].filter((n) => n.kind === "Pod" && n.uid !== root.uid).slice(0, maxPods);
  if (pods.length > 0 && !shared.has(root.kind)) {
    for (const {items = []} of await relatedOf(pods, maxNodes, signal)) {
      for (const item of items) {
        const ends = (item.relatedTo ?? []).filter((uid) => nodes.has(uid));
        if (ends.length > 0 && add(item)) for (const uid of ends) join(uid, item.uid);
      }
    }
  }
  return {root, nodes, edges: directed(root, nodes, [...pairs.values()]), omitted};
}

// owners returns the UIDs of the direct and indirect owners of a node.
function owners(node, nodes) {
  const out = [];
  for (let at = node; at?.owner && !out.includes(at.owner) && out.length < 8;) {
    out.push(at.owner);
    at = nodes.get(at.owner);
  }
  return out;
}

// directed gives each edge its direction. It leaves out the edges to the owner of an owner.
function directed(root, nodes, pairs) {
  const out = [];
  for (const pair of pairs) {
    const [a, b] = pair.map((uid) => nodes.get(uid));
    const edge = owned(a, b, nodes) ?? owned(b, a, nodes) ?? typical(a, b) ?? typical(b, a) ?? {from: a.uid === root.uid ? a : b, to: a.uid === root.uid ? b : a, label: "is related to"};
    if (edge.label) out.push({from: edge.from.uid, to: edge.to.uid, label: edge.label});
  }
  return out;
}

function owned(owner, node, nodes) {
  const chain = owners(node, nodes);
  const at = chain.indexOf(owner.uid);
  if (at < 0) return undefined;
  // A missing link of the chain is not visible to the user.
  const linked = chain.slice(0, at).every((uid) => nodes.has(uid));
  return {from: owner, to: node, label: at === 0 || !linked ? "owns" : ""};
}

function typical(a, b) {
  if (a.kind === "Pod" && b.kind === "Node") return {from: a, to: b, label: "runs on"};
  if (a.kind === "Pod" && used.has(b.kind)) return {from: a, to: b, label: "uses"};
  if (a.kind === "Service" && b.kind === "Pod") return {from: a, to: b, label: "selects"};
  if (a.kind === "PersistentVolumeClaim" && b.kind === "PersistentVolume") return {from: a, to: b, label: "is bound to"};
  if (a.kind === "AppliedManifestWork") return {from: a, to: b, label: "delivers"};
  return undefined;
}
