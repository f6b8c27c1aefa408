// The columns of each kind in the results.

import {resourceLink} from "./router.js";
import {Age, Text, html, maxCell} from "./view.js";
import {isTime} from "./text.js";

// Clusters name kinds and properties, so a name such as "constructor" must not find a member of Object.
const titles = {
  __proto__: null,
  accessMode: "Access", claimRef: "Claim", clusterIP: "Cluster IP", cpu: "CPU", externalIP: "External IP", hostIP: "Host IP", ipAddress: "Address",
  kubeletVersion: "Kubelet", kubernetesVersion: "Kubernetes", memoryCapacity: "Memory", osImage: "OS", podIP: "Pod IP", storageClassName: "Storage class",
  ManagedClusterConditionAvailable: "Available", HubAcceptedManagedCluster: "Accepted",
};

const known = {
  __proto__: null,
  Cluster: ["HubAcceptedManagedCluster", "ManagedClusterConditionAvailable", "kubernetesVersion", "nodes", "cpu", "memory"],
  CronJob: ["schedule", "suspend", "active", "lastSchedule"],
  DaemonSet: ["desired", "current", "ready", "available", "updated"],
  Deployment: ["desired", "ready", "available", "updated"],
  Ingress: ["ingressClassName", "host", "address"],
  Job: ["status", "completions", "successful", "failed"],
  Namespace: ["status"],
  Node: ["status", "role", "kubeletVersion", "cpu", "memoryCapacity", "ipAddress"],
  PersistentVolume: ["status", "capacity", "storageClassName", "claimRef"],
  PersistentVolumeClaim: ["status", "capacity", "storageClassName", "volumeName"],
  Pod: ["status", "restarts", "node", "podIP", "image"],
  ReplicaSet: ["desired", "current", "ready"],
  Service: ["type", "clusterIP", "externalIP", "port"],
  StatefulSet: ["desired", "ready", "updated"],
};

const common = new Set(["annotation", "apigroup", "apiversion", "cluster", "created", "kind", "kind_plural", "label", "name", "namespace"]);
const maxDerived = 4;
const derived = new Map();

// propertiesOf returns the properties of a kind to show. They stay the same for all pages.
function propertiesOf(kind, items) {
  if (known[kind]) return known[kind];
  if (derived.has(kind)) return derived.get(kind);
  const found = [];
  for (const item of items.slice(0, 20)) {
    for (const [name, value] of Object.entries(item.properties)) {
      if (common.has(name) || name.startsWith("_") || found.includes(name) || (value !== null && typeof value === "object")) continue;
      found.push(name);
    }
  }
  found.sort((a, b) => (b === "status") - (a === "status") || a.localeCompare(b));
  const out = found.slice(0, maxDerived);
  if (items.length > 0) derived.set(kind, out);
  return out;
}

// valueOf returns the value of a property, or undefined if the resource does not have it.
export const valueOf = (item, name) => (Object.hasOwn(item.properties, name) ? item.properties[name] : undefined);

const title = (name) => titles[name] ?? name.charAt(0).toUpperCase() + name.slice(1).replace(/([a-z])([A-Z])/g, (_, a, b) => `${a} ${b.toLowerCase()}`);

const cell = (name) => ({
  name, title: title(name), sort: true,
  render: (item) => {
    const value = valueOf(item, name);
    return isTime(value) ? html`<${Age} date=${value} />` : html`<${Text} text=${value} max=${maxCell} />`;
  },
});

const nameCell = {
  name: "name", title: "Name", sort: true, heading: true,
  render: (item) => html`<a class="row" href=${resourceLink(item.cluster, item.properties)}><${Text} text=${item.properties.name ?? item.uid} max=${maxCell} /></a>`,
};

const clusterCell = {name: "cluster", title: "Cluster", sort: true, render: (item) => html`<${Text} text=${item.cluster} max=${maxCell} />`};

// columnsOf returns the columns for items of a kind, or of several kinds if kind is empty.
export function columnsOf(kind, items) {
  const namespaced = items.length === 0 || items.some((item) => item.properties.namespace !== undefined);
  const own = kind ? propertiesOf(kind, items).map(cell) : [cell("kind"), cell("status")];
  return [nameCell, ...(namespaced ? [cell("namespace")] : []), clusterCell, ...own, {...cell("created"), title: "Age"}];
}

// exported returns the names of all properties of items, the common ones first.
export function exported(items) {
  const names = new Set(["kind", "apigroup", "namespace", "name", "created"]);
  for (const item of items) for (const name of Object.keys(item.properties)) if (!name.startsWith("_") && name !== "cluster") names.add(name);
  return ["cluster", ...names];
}
