// The reasons of conditions in words.

const permission = {
  __proto__: null,
  Validation: "The ClusterPermission cannot be delivered.",
  Approved: "It waits for approval.",
  RBACManifestWorkCreated: "The server could not write its ManifestWork.",
  AppliedRBACManifestWork: "The agent has not applied it.",
  FullyDelivered: "A part of it is not delivered.",
  SubjectPresent: "A ManagedServiceAccount of a binding is not on the cluster.",
  NamespacesSelected: "A namespaceSelector matches no namespace.",
  RoleRefsPresent: "A role of the hub does not exist.",
  ValidateRolesExist: "A Role does not exist on the cluster.",
  ValidateClusterRolesExist: "A ClusterRole does not exist on the cluster.",
};

const reasons = {
  __proto__: null,
  ApplyRBACManifestWorkNotComplete: "The agent has not reported on the current version yet.",
  ApprovalPending: "It waits for approval.",
  FailedValidationNotInManagedClusterNamespace: "The ManagedCluster does not exist. Changes are delivered when the cluster joins.",
  WaitingForManagedCluster: "There is no ManagedCluster yet. Nothing is delivered until the cluster joins.",
  NothingToDeliver: "No part of it can be delivered.",
  ManifestWorkBeingRemoved: "The agent removes the delivered objects.",
};

const conditionsOf = (object) => object.status?.conditions ?? [];
const sentence = (condition, words) => ({words: reasons[condition.reason] ?? words, detail: condition.message ?? ""});

// permissionReasons returns why a ClusterPermission is not applied: sentences, each with the message of the server.
export function permissionReasons(object) {
  const all = conditionsOf(object);
  // Without ManifestWork, the agent has nothing to apply.
  const created = all.find((c) => c.type === "RBACManifestWorkCreated")?.status === "True";
  const bad = all.filter((c) => c.status !== "True" && permission[c.type] && (created || c.type !== "AppliedRBACManifestWork"));
  const order = Object.keys(permission);
  bad.sort((a, b) => order.indexOf(a.type) - order.indexOf(b.type));
  if (bad.length === 0) return [{words: "The server has not reported on it yet.", detail: ""}];
  return bad.slice(0, 4).map((c) => sentence(c, permission[c.type]));
}

// workReasons returns why a ManifestWork is not applied.
export function workReasons(object) {
  const out = [];
  const conditions = conditionsOf(object);
  const applied = conditions.find((c) => c.type === "Applied");
  const available = conditions.find((c) => c.type === "Available");
  if (object.metadata?.deletionTimestamp) out.push({words: "It is being deleted. The agent removes its objects.", detail: ""});
  if (!applied) out.push({words: "The agent has not reported on it. Check that the cluster is available.", detail: ""});
  else if (applied.status !== "True") out.push(sentence(applied, "The agent has not applied all manifests."));
  else if (applied.observedGeneration && applied.observedGeneration < object.metadata?.generation) out.push({words: "The agent has not reported on the current version yet.", detail: ""});
  for (const manifest of object.status?.resourceStatus?.manifests ?? []) {
    const failed = (manifest.conditions ?? []).find((c) => c.type === "Applied" && c.status !== "True");
    if (!failed || out.length >= 6) continue;
    const {kind, resource, namespace, name} = manifest.resourceMeta ?? {};
    out.push({words: `${kind || resource || "A manifest"} ${namespace ? `${namespace}/` : ""}${name ?? ""} is not applied.`, detail: failed.message ?? ""});
  }
  if (applied?.status === "True" && available && available.status !== "True") out.push({words: "An applied object does not exist any more.", detail: available.message ?? ""});
  return out;
}
