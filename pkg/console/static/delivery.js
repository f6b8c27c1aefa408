// What delivered a resource to its cluster: the ManifestWork, and the ClusterPermission behind it.

import {get, groups, path} from "./api.js";
import {operands, shell} from "./text.js";
import {Command, Problem, State, Text, html, useRequest} from "./view.js";

const delivered = "rbac.open-cluster-management.io/clusterpermission";
const lists = {__proto__: null, ClusterRole: "clusterRoles", ClusterRoleBinding: "clusterRoleBindings", Role: "roles", RoleBinding: "roleBindings"};

// workOf returns the name of the ManifestWork of an AppliedManifestWork, whose name begins with the hash of the hub.
const workOf = (record) => /^[0-9a-f]{64}-(.+)$/s.exec(String(record.properties.name))?.[1];

// claimedBy returns the name of the ClusterPermission that a ManifestWork claims to deliver. Its author may claim any.
const claimedBy = (work) => work?.metadata?.annotations?.[delivered] ?? (work?.metadata?.ownerReferences ?? []).find((o) => o.kind === "ClusterPermission")?.name;

// contains reports whether a ClusterPermission delivers a resource, according to its status, which only the server writes.
const contains = (permission, {kind, namespace = "", name}) => (permission?.status?.resourceStatus?.[lists[kind]] ?? []).some((o) => o.name === name && (o.namespace ?? "") === namespace);

function Work({item, name}) {
  const {cluster} = item;
  const {data, error} = useRequest((signal) => get(path(groups.works, "namespaces", cluster, "manifestworks", name), {signal}), [cluster, name]);
  const applied = data?.status?.conditions?.find((c) => c.type === "Applied")?.status;
  const claimed = claimedBy(data);
  const {data: found} = useRequest((signal) => (claimed ? get(path(groups.permissions, "namespaces", cluster, "clusterpermissions", claimed), {signal}) : Promise.resolve()), [cluster, claimed], claimed);
  const permission = contains(found, item.properties) && claimed;
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
  return html`<ul class="plain">${names.slice(0, 10).map((name) => html`<${Work} key=${name} item=${item} name=${name} />`)}</ul>`;
}
