// ClusterPermissions that wait for approval: what they would grant, and their approval.

import {get, groups, may, path, request, rows} from "./api.js";
import {grantsOf} from "./rules.js";
import {number, shell, visible} from "./text.js";
import {Age, Command, Loading, Problem, State, Text, Unread, html, label, useEffect, useRequest, useState} from "./view.js";

const refreshEvery = 15_000;
const maxPending = 50;
const maxNamespaces = 100;
const resource = "clusterpermissions";
const where = (cp, ...more) => path(groups.permissions, "namespaces", cp.metadata.namespace, resource, cp.metadata.name, ...more);

async function clusterNames(signal) {
  const list = await get(`${groups.search}/inventories`, {signal}).catch((error) => {
    if (error.forbidden || error.missing) return {};
    throw error;
  });
  return (list.items ?? []).map((i) => i.metadata.name);
}

// pending returns the ClusterPermissions that wait for approval.
async function pending(signal) {
  let found;
  let more;
  try {
    ({rows: found, more} = await rows(`${groups.permissions}/${resource}`, {signal}));
  } catch (error) {
    if (!error.forbidden) throw error;
    let refused = error;
    found = [];
    const names = await clusterNames(signal);
    more = names.length > maxNamespaces;
    for (const name of names.slice(0, maxNamespaces)) {
      try {
        const one = await rows(path(groups.permissions, "namespaces", name, resource), {signal});
        found.push(...one.rows);
        more ||= one.more;
        refused = null;
      } catch (one) {
        if (!one.forbidden) throw one;
      }
    }
    if (refused) throw refused;
  }
  const waiting = found.filter((r) => /^Pending/.test(r.cells.Approval ?? ""));
  const objects = await Promise.all(waiting.slice(0, maxPending).map(({metadata}) => get(where({metadata}), {signal}).catch((error) => {
    if (error.forbidden || error.missing) return null;
    throw error;
  })));
  return {count: waiting.length, read: found.length, more, objects: objects.filter((o) => o?.status?.approval?.pending)};
}

// render returns what a spec grants on the cluster.
async function render(object, signal) {
  const {managedFields, ...metadata} = object.metadata;
  return grantsOf(await request("POST", where(object, "rendered"), {signal, body: {apiVersion: object.apiVersion, kind: object.kind, metadata, spec: object.spec}}));
}

function Preview({object}) {
  const delivered = object.status.approval.delivered;
  const {data, error, loading} = useRequest(async (signal) => {
    const grants = await render(object, signal);
    const before = delivered ? await render({...object, spec: delivered.spec}, signal) : new Map();
    return {grants, before};
  }, [object.metadata.uid, object.metadata.generation]);
  if (!data) return html`<${Problem} error=${error} what="what it would grant" />${!error && loading && html`<${Loading} what="what it would grant" />`}`;
  return html`<ul class="grants" aria-label="What it would grant">
    ${[...data.grants].map(([key, text]) => html`<li key=${key}>${delivered && !data.before.has(key) && html`<strong>New: </strong>`}<${Text} text=${text} max=${1000} /></li>`)}
    ${[...data.before].map(([key, text]) => !data.grants.has(key) && html`<li key=${key}><strong>Removed: </strong><${Text} text=${text} max=${1000} /></li>`)}
    ${data.grants.size === 0 && html`<li>It would grant nothing at the moment.</li>`}
  </ul>`;
}

function Pending({object, onDone}) {
  const [open, setOpen] = useState(false);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const {namespace, name, uid} = object.metadata;
  const {pending: of} = object.status.approval;
  const {data: allowed} = useRequest((signal) => may({group: "rbac.open-cluster-management.io", resource, subresource: "approval", verb: "update", namespace, name}, signal), [uid]);
  const approve = async () => {
    setBusy(true);
    setError(null);
    try {
      await request("PUT", where(object, "approval"), {body: object});
      onDone(`${namespace}/${name} is approved.`);
    } catch (failed) {
      setError(failed);
    }
    setBusy(false);
  };
  const file = `/${where(object, "approval")}`;
  return html`<li class="pending">
    <h3><${Text} text=${name} max=${100} /> on <${Text} text=${namespace} max=${100} /></h3>
    <p>Generation ${of.generation}, requested by <strong><${Text} text=${of.requestedBy} max=${200} /></strong>, waits for <${Age} date=${of.requestedAt} />.
      ${object.status.approval.delivered ? ` Generation ${object.status.approval.delivered.generation} stays delivered.` : " Nothing of it is delivered yet."}</p>
    <p><button type="button" aria-expanded=${open} onClick=${() => setOpen(!open)}>${open ? "Hide" : "Show"} what it would grant<span class="hidden"> for ${label(name)} on ${label(namespace)}</span></button></p>
    ${open && html`<${Preview} object=${object} />
      <details><summary>The spec as JSON</summary><pre class="json">${JSON.stringify(object.spec, null, 2).split("\n").map((line) => `${visible(line)}\n`)}</pre></details>
      ${allowed ? html`<p><button type="button" class="primary" disabled=${busy} onClick=${approve}>Approve generation ${of.generation}<span class="hidden"> of ${label(name)} on ${label(namespace)}</span></button></p>`
        : html`<p class="note">You are not allowed to approve it.</p>`}
      <p class="note">The same with kubectl:</p>
      <${Command} text=${`kubectl get clusterpermission ${shell(name)} -n ${shell(namespace)} -o json > permission.json`} label="Command that reads it" />
      <p class="note">After you have read the file:</p>
      <${Command} text=${`kubectl replace --raw ${shell(file)} -f permission.json`} label="Command that approves it" />`}
    ${error && html`<p class="problem" role="alert"><${Text} text=${error.message} max=${4000} /></p>`}
  </li>`;
}

export function Approvals() {
  const [done, setDone] = useState("");
  const {data, error, loading, reload} = useRequest(pending, []);
  const approved = (text) => {
    setDone(text);
    reload();
  };
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && reload(), refreshEvery);
    return () => clearInterval(timer);
  }, []);
  return html`<section aria-labelledby="approvals">
    <h2 id="approvals">ClusterPermissions that wait for approval ${data && html`<span class="count">${number(data.count)}</span>`}</h2>
    <p role="status"><${Text} text=${done} /></p>
    <${Problem} error=${error} what="ClusterPermissions" />
    ${!data ? loading && html`<${Loading} what="ClusterPermissions" />`
      : data.count === 0 ? html`<p><${State} state="good">No ClusterPermission that ${data.more ? "the page has read" : "you may list"} waits for approval.</${State}></p>`
      : html`<ul class="plain">${data.objects.map((o) => html`<${Pending} key=${`${o.metadata.uid}/${o.metadata.generation}`} object=${o} onDone=${approved} />`)}</ul>`}
    ${data?.count > maxPending && html`<p class="note">The page shows the first ${maxPending}.</p>`}
    ${data?.more && html`<${Unread} read=${data.read} what="ClusterPermissions" />`}
  </section>`;
}
