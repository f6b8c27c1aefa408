// The view of the fleet: clusters by set, clusters that wait for acceptance, and what is not applied.

import {ask, get, groups, may, path, request, rows} from "./api.js";
import {permissionReasons, workReasons} from "./reasons.js";
import {go, link, route} from "./router.js";
import {number, plural, shell} from "./text.js";
import {Pager, Table, arrows} from "./table.js";
import {Age, Command, Dialog, Loading, Problem, State, Text, Unread, html, label, maxCell, useEffect, useMemo, useRequest, useState, useTick} from "./view.js";

const setLabel = "cluster.open-cluster-management.io/clusterset";
const pageSize = 50;
const refreshEvery = 15_000;
const maxReviews = 50;
const maxNamespaces = 100;
const maxReasons = 50;
const maxRows = 200;

const condition = (cluster, type) => (cluster.status?.conditions ?? []).find((c) => c.type === type);

// listed returns the items of a list, or an empty list with the error if it is forbidden or not served.
async function listed(where, signal, query) {
  try {
    const items = [];
    let token = "";
    do {
      const list = await get(where, {signal, query: {...query, limit: 1000, continue: token}});
      items.push(...(list.items ?? []));
      token = list.metadata?.continue ?? "";
    } while (token && items.length < 20_000);
    return {items};
  } catch (error) {
    if (error.forbidden || error.missing) return {items: [], error};
    throw error;
  }
}

// clustersOf returns the clusters that the user may get.
async function clustersOf(signal) {
  const found = await listed(`${groups.views}/managedclusters`, signal);
  return found.error ? (await listed(`${groups.clusters}/managedclusters`, signal)).items : found.items;
}

// reportedClusters returns the clusters that the user may view, as their resources describe them.
async function reportedClusters(signal) {
  const status = await ask(`${groups.search}/searches`, "Search", {query: "kind:Cluster", limit: 5000}, {signal}).catch((error) => {
    if (error.forbidden || error.missing) return {};
    throw error;
  });
  return (status.items ?? []).map(({properties: p}) => ({
    derived: true,
    metadata: {name: p.name, labels: p.label, creationTimestamp: p.created},
    spec: {hubAcceptsClient: p.HubAcceptedManagedCluster === "True"},
    status: {
      version: {kubernetes: p.kubernetesVersion},
      conditions: ["HubAcceptedManagedCluster", "ManagedClusterJoined", "ManagedClusterConditionAvailable"].filter((type) => p[type] !== undefined).map((type) => ({type, status: String(p[type])})),
    },
  }));
}

async function load(signal) {
  const [clusters, inventories, registrations] = await Promise.all([
    clustersOf(signal), listed(`${groups.search}/inventories`, signal), listed(`${groups.register}/managedclusters`, signal),
  ]);
  const reports = new Map(inventories.items.map((i) => [i.metadata.name, i.status ?? {}]));
  const registered = new Map(registrations.items.map((r) => [r.metadata.name, r]));
  const got = new Set(clusters.map((c) => c.metadata.name));
  if ([...reports.keys()].some((name) => !got.has(name))) clusters.push(...(await reportedClusters(signal)).filter((c) => !got.has(c.metadata.name)));
  const all = clusters.map((cluster) => ({
    name: cluster.metadata.name, cluster, report: reports.get(cluster.metadata.name), registration: registered.get(cluster.metadata.name),
    set: cluster.metadata.labels?.[setLabel] ?? "",
  }));
  const known = new Set(all.map((c) => c.name));
  for (const [name, report] of reports) if (!known.has(name)) all.push({name, report, set: ""});
  all.sort((a, b) => (a.name < b.name ? -1 : 1));
  return all;
}

const waits = ({cluster}) => cluster && !cluster.derived && !cluster.spec?.hubAcceptsClient && !cluster.status?.acceptance?.decidedAt && !cluster.metadata.deletionTimestamp;

function availability({cluster}) {
  const c = cluster && condition(cluster, "ManagedClusterConditionAvailable");
  if (!c) return ["unknown", "Not reported"];
  return {__proto__: null, True: ["good", "Available"], False: ["bad", "Not available"]}[c.status] ?? ["bad", "Unknown"];
}

function registrationOf({cluster, registration}) {
  if (!cluster) return ["unknown", "Not visible"];
  if (cluster.metadata.deletionTimestamp) return ["wait", "Being deleted"];
  if (waits({cluster})) return ["wait", "Waits for acceptance"];
  if (!cluster.spec?.hubAcceptsClient) return cluster.derived ? ["wait", "Not accepted"] : ["bad", "Denied"];
  const accepted = condition(cluster, "HubAcceptedManagedCluster");
  const driver = registration?.spec?.driver ? ` (${registration.spec.driver})` : "";
  if (accepted && accepted.status !== "True") return ["bad", `Accepted, no access yet${driver}`];
  if (condition(cluster, "ManagedClusterJoined")?.status !== "True") return ["wait", `Accepted, not joined${driver}`];
  return ["good", `Joined${driver}`];
}

function Mark({of}) {
  return html`<${State} state=${of[0]}><${Text} text=${of[1]} max=${60} /></${State}>`;
}

const columns = [
  {name: "name", title: "Cluster", render: (c) => html`<a class="row" href=${link("search", {q: `cluster:${c.name}`})}><${Text} text=${c.name} max=${maxCell} /></a>`},
  {name: "available", title: "Availability", render: (c) => html`<${Mark} of=${availability(c)} />`},
  {name: "registration", title: "Registration", render: (c) => html`<${Mark} of=${registrationOf(c)} />`},
  {name: "report", title: "Last report", render: (c) => (!c.report ? html`<span class="note">not visible</span>` : c.report.state === "Reporting" && c.report.lastReportTime
    ? html`<${Age} date=${c.report.lastReportTime} />`
    : html`<${State} state=${c.report.state === "Absent" ? "unknown" : "bad"}><${Text} text=${c.report.state} />${c.report.lastReportTime && html` (<${Age} date=${c.report.lastReportTime} />)`}</${State}>`)},
  {name: "resources", title: "Resources", numeric: true, render: (c) => (c.report ? number(c.report.resources ?? 0) : "")},
  {name: "version", title: "Kubernetes", render: (c) => html`<${Text} text=${c.cluster?.status?.version?.kubernetes} max=${40} />`},
  {name: "age", title: "Age", render: (c) => html`<${Age} date=${c.cluster?.metadata.creationTimestamp} />`},
];

function ClusterSet({name, clusters}) {
  const [page, setPage] = useState(1);
  const pages = Math.max(1, Math.ceil(clusters.length / pageSize));
  const shown = Math.min(page, pages);
  const good = clusters.filter((c) => availability(c)[0] === "good").length;
  return html`<section class="group" aria-label=${name ? `Set ${label(name)}` : "Without set"}>
    <div class="bar"><h2>${name ? html`<${Text} text=${name} max=${80} />` : "Without set"} <span class="count">${number(good)} of ${number(clusters.length)} available</span></h2>
      <${Pager} page=${shown} pages=${pages} onPage=${setPage} label=${`Pages of ${label(name) || "clusters without set"}`} /></div>
    <${Table} caption=${name ? `Clusters of the set ${name}` : "Clusters without set"} columns=${columns} rows=${clusters.slice((shown - 1) * pageSize, shown * pageSize)} keyOf=${(c) => c.name} />
  </section>`;
}

const acceptance = (name) => ({group: "register.open-cluster-management.io", resource: "managedclusters", subresource: "accept", verb: "update", name});

// AcceptDialog accepts a cluster after the user has seen who requests it.
function AcceptDialog({waiting, onClose, onDone}) {
  const [reason, setReason] = useState("");
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const {name, cluster, registration} = waiting;
  const accept = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const done = await request("PUT", path(groups.register, "managedclusters", name, "accept"), {body: {
        apiVersion: "register.open-cluster-management.io/v1alpha1", kind: "ManagedClusterAcceptance", metadata: {name, uid: cluster.metadata.uid}, spec: {accepted: true, reason: reason || undefined},
      }});
      onDone(name, done.status);
    } catch (failed) {
      setError(failed);
      setBusy(false);
    }
  };
  return html`<${Dialog} title="Accept a cluster" onClose=${onClose}>
    <form onSubmit=${accept}>
      <p>The agent of <strong><${Text} text=${name} /></strong> gets access to the objects of this cluster on the hub.</p>
      <dl class="facts">
        ${registration?.spec?.requestedBy?.username && html`<div><dt>Requested by</dt><dd><${Text} text=${registration.spec.requestedBy.username} /></dd></div>`}
        ${registration?.spec?.irsa?.managedClusterARN && html`<div><dt>EKS cluster</dt><dd><${Text} text=${registration.spec.irsa.managedClusterARN} /></dd></div>`}
        <div><dt>Waits for</dt><dd><${Age} date=${cluster.metadata.creationTimestamp} /></dd></div>
      </dl>
      <p><label for="reason">Reason (optional)</label> <input id="reason" maxlength="1024" value=${reason} onInput=${(e) => setReason(e.target.value)} /></p>
      ${error && html`<p class="problem" role="alert"><${Text} text=${error.message} max=${2000} /></p>`}
      <p><button type="submit" class="primary" disabled=${busy}>Accept <${Text} text=${name} max=${60} /></button></p>
      <p class="note">The same with clusteradm:</p>
      <${Command} text=${`clusteradm accept --clusters ${shell(name)}`} />
    </form>
  </${Dialog}>`;
}

function Waiting({clusters, reload}) {
  const [open, setOpen] = useState(null);
  const [done, setDone] = useState("");
  const names = clusters.map((c) => c.name).join("\n");
  const {data: allowed} = useRequest(async (signal) => {
    if (clusters.length === 0) return new Set();
    if (await may(acceptance(undefined), signal)) return new Set(clusters.map((c) => c.name));
    const single = await Promise.all(clusters.slice(0, maxReviews).map(async (c) => ((await may(acceptance(c.name), signal)) ? c.name : "")));
    return new Set(single.filter(Boolean));
  }, [names]);
  if (clusters.length === 0 && !done) return null;
  const accepted = (name, status) => {
    setOpen(null);
    setDone(`${name} is accepted.${status?.approvedRequests?.length ? ` ${plural(status.approvedRequests.length, "certificate request")} approved.` : ""}`);
    reload();
  };
  return html`<section class="group" aria-labelledby="waiting"><h2 id="waiting">Waiting for acceptance <span class="count">${number(clusters.length)}</span></h2>
    <p role="status"><${Text} text=${done} /></p>
    ${clusters.length > 0 && html`<${Table} caption="Clusters that wait for acceptance" keyOf=${(c) => c.name} rows=${clusters.slice(0, maxRows)} columns=${[
      {name: "name", title: "Cluster", render: (c) => html`<${Text} text=${c.name} max=${maxCell} />`},
      {name: "by", title: "Requested by", render: (c) => html`<${Text} text=${c.registration?.spec?.requestedBy?.username} max=${maxCell} />`},
      {name: "age", title: "Waits for", render: (c) => html`<${Age} date=${c.cluster.metadata.creationTimestamp} />`},
      {name: "accept", title: "Decision", render: (c) => (allowed?.has(c.name) ? html`<button type="button" class="row" onClick=${() => setOpen(c)}>Accept …<span class="hidden"> ${label(c.name)}</span></button>` : html`<span class="note">you may not accept it</span>`)},
    ]} />`}
    ${clusters.length > maxRows && html`<p class="note">The table contains the first ${maxRows}.</p>`}
    ${open && html`<${AcceptDialog} waiting=${open} onClose=${() => setOpen(null)} onDone=${accepted} />`}
  </section>`;
}

// each runs a function for all values, a few at a time.
async function each(values, run) {
  const out = new Array(values.length);
  let at = 0;
  await Promise.all(Array.from({length: Math.min(4, values.length)}, async () => {
    while (at < values.length) { const i = at++; out[i] = await run(values[i]); }
  }));
  return out;
}

// everywhere returns the rows of a resource in all namespaces, or in the namespaces of the given clusters if the user may
// not list all.
async function everywhere(group, resource, clusters, signal) {
  try {
    return await rows(`${group}/${resource}`, {signal});
  } catch (error) {
    if (error.missing) return {rows: [], hidden: true};
    if (!error.forbidden) throw error;
  }
  let allowed = false;
  let more = clusters.length > maxNamespaces;
  const found = await each(clusters.slice(0, maxNamespaces), async (name) => {
    try {
      const one = await rows(path(group, "namespaces", name, resource), {signal});
      allowed = true;
      more ||= one.more;
      return one.rows;
    } catch (error) {
      if (error.forbidden || error.missing) return [];
      throw error;
    }
  });
  return {rows: found.flat(), more, hidden: !allowed};
}

const resources = {
  manifestworks: {group: groups.works, title: "ManifestWorks", kind: "ManifestWork", why: workReasons, bad: (c) => c.Applied !== "True" || c.Available === "False"},
  clusterpermissions: {group: groups.permissions, title: "ClusterPermissions", kind: "ClusterPermission", why: permissionReasons, bad: (c) => c.Applied !== "True"},
};

function Reasons({of}) {
  if (!of) return html`<span class="note">…</span>`;
  return html`<ul class="reasons">${of.map((r, i) => html`<li key=${i}><${Text} text=${r.words} max=${300} />${r.detail && html` <span class="detail"><${Text} text=${r.detail} max=${600} /></span>`}</li>`)}</ul>`;
}

function NotApplied({name, clusters, version}) {
  const {group, title, kind, why, bad} = resources[name];
  const known = clusters.map((c) => c.name).join("\n");
  const {data, error, loading} = useRequest(async (signal) => {
    const all = await everywhere(group, name, known ? known.split("\n") : [], signal);
    const failed = all.rows.filter((r) => bad(r.cells));
    const objects = await each(failed.slice(0, maxReasons), ({metadata}) => get(path(group, "namespaces", metadata.namespace, name, metadata.name), {signal}).catch((e) => {
      if (e.unreachable || e.name === "AbortError") throw e;
      return null;
    }));
    return {...all, failed: failed.map((r, i) => ({...r, reasons: i < maxReasons ? (objects[i] ? why(objects[i]) : [{words: "You are not allowed to read it.", detail: ""}]) : undefined}))};
  }, [known, version]);
  const heading = html`<h2 id=${name}>${title} that are not applied ${data && !data.hidden && html`<span class="count">${number(data.failed.length)} of ${number(data.rows.length)}${data.more && "+"}</span>`}</h2>`;
  return html`<section class="group" aria-labelledby=${name}>${heading}
    ${error && html`<${Problem} error=${error} what=${title} />`}
    ${!data ? loading && html`<${Loading} what=${title} />`
      : data.hidden ? html`<p class="note">You are not allowed to list ${title}.</p>`
      : data.failed.length === 0 ? html`<p><${State} state="good">All ${title} that ${data.more ? "the page has read" : "you may list"} are applied.</${State}></p>`
      : html`<${Table} caption=${`${title} that are not applied`} rows=${data.failed.slice(0, maxRows)} keyOf=${(r) => r.metadata.uid ?? `${r.metadata.namespace}/${r.metadata.name}`} columns=${[
          {name: "name", title: kind, render: (r) => html`<${Text} text=${r.metadata.name} max=${maxCell} />`},
          {name: "cluster", title: "Cluster", render: (r) => html`<${Text} text=${r.metadata.namespace} max=${maxCell} />`},
          {name: "age", title: "Age", render: (r) => html`<${Age} date=${r.metadata.creationTimestamp} />`},
          {name: "why", title: "Reason", render: (r) => html`<div class="wide"><${Reasons} of=${r.reasons} />${/^Pending/.test(r.cells.Approval ?? "") && html`<a href=${link("access/approvals")}>Review the approval</a>`}</div>`},
        ]} />`}
    ${data?.failed.length > maxRows && html`<p class="note">The table contains the first ${maxRows}.</p>`}
    ${data?.more && !data.hidden && html`<${Unread} read=${data.rows.length} what=${title} />`}
  </section>`;
}

export function Fleet({params}) {
  const [version, setVersion] = useState(0);
  const {data, error, loading} = useRequest(load, [version]);
  useTick(15);
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && setVersion((n) => n + 1), refreshEvery);
    return () => clearInterval(timer);
  }, []);
  const slowly = Math.floor(version / 4);
  const filter = (params.filter ?? "").toLowerCase();
  const matches = (c) => !filter || c.name.toLowerCase().includes(filter) || Object.entries(c.cluster?.metadata.labels ?? {}).some(([k, v]) => `${k}=${v}`.toLowerCase().includes(filter));
  const shown = useMemo(() => (data ?? []).filter(matches), [data, filter]);
  const sets = useMemo(() => {
    const out = new Map();
    for (const c of shown.filter((one) => !waits(one))) out.set(c.set, [...(out.get(c.set) ?? []), c]);
    return [...out].sort(([a], [b]) => (a === "") - (b === "") || (a < b ? -1 : 1));
  }, [shown]);
  const waiting = shown.filter(waits);
  return html`<div class="fleet" onKeyDown=${arrows}>
    <h1 tabindex="-1">Fleet</h1>
    <${Problem} error=${error} what="the clusters" />
    ${!data ? loading && html`<${Loading} what="the clusters" />` : html`<div>
      <div class="toolbar"><p role="status">${plural(shown.length, "cluster")}, ${number(shown.filter((c) => availability(c)[0] === "good").length)} available${waiting.length > 0 ? `, ${number(waiting.length)} waiting for acceptance` : ""}</p>
        <p class="filter"><label for="filter">Filter by name or label</label> <input id="filter" type="search" value=${params.filter ?? ""} onInput=${(e) => go("fleet", {...route().params, filter: e.target.value}, {replace: true})} /></p></div>
      <${Waiting} clusters=${waiting} reload=${() => setVersion((n) => n + 1)} />
      ${sets.map(([name, clusters]) => html`<${ClusterSet} key=${name} name=${name} clusters=${clusters} />`)}
      ${data.length === 0 && html`<p class="note">There is no cluster that you may view.</p>`}
      <${NotApplied} name="manifestworks" clusters=${data} version=${slowly} />
      <${NotApplied} name="clusterpermissions" clusters=${data} version=${slowly} />
    </div>`}
  </div>`;
}
