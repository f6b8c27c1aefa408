// What delivered a resource to its cluster: the ManifestWork, and the ClusterPermission behind it.

import {get, groups, path} from "./api.js";
import {operands, shell} from "./text.js";
import {Command, Problem, State, Text, html, useRequest} from "./view.js";

const delivered = "rbac.open-cluster-management.io/clusterpermission";

// workOf returns the name of the ManifestWork of an AppliedManifestWork, whose name begins with the hash of the hub.
const workOf = (record) => /^[0-9a-f]{64}-(.+)$/s.exec(String(record.properties.name))?.[1];

// permissionOf returns the name of the ClusterPermission that a ManifestWork was rendered from.
const permissionOf = (work) => work.metadata?.annotations?.[delivered] ?? (work.metadata?.ownerReferences ?? []).find((o) => o.kind === "ClusterPermission")?.name;

function Work({cluster, name}) {
  const {data, error} = useRequest((signal) => get(path(groups.works, "namespaces", cluster, "manifestworks", name), {signal}), [cluster, name]);
  const applied = data?.status?.conditions?.find((c) => c.type === "Applied")?.status;
  const permission = data && permissionOf(data);
  return html`<li>
    ManifestWork <strong><${Text} text=${name} max=${120} /></strong>
    ${data && html` <${State} state=${applied === "True" ? "good" : "bad"}>${applied === "True" ? "applied" : "not applied"}</${State}>`}
    ${permission && html`, rendered from the ClusterPermission <strong><${Text} text=${permission} max=${120} /></strong>`}
    ${error?.missing ? html`<p class="note">The hub does not have this ManifestWork any more.</p>` : html`<${Problem} error=${error} what="this ManifestWork" />`}
    <${Command} text=${`kubectl get -n ${shell(cluster)} -o yaml ${operands(["manifestwork", name])}`} />
    ${permission && html`<${Command} text=${`kubectl get -n ${shell(cluster)} -o yaml ${operands(["clusterpermission", permission])}`} />`}
  </li>`;
}

export function Delivery({item, related}) {
  const records = related.find((r) => r.kind === "AppliedManifestWork")?.items ?? [];
  const names = [...new Set(records.map(workOf).filter(Boolean))];
  if (names.length === 0) return html`<p class="note">No ManifestWork of this hub delivered it, as far as its cluster reports.</p>`;
  return html`<ul class="plain">${names.slice(0, 10).map((name) => html`<${Work} key=${name} cluster=${item.cluster} name=${name} />`)}</ul>`;
}
