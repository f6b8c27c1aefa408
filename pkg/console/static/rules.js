// RBAC in words.

const list = (words) => (words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`);
const all = (words, one) => (words.includes("*") ? one : list(words));

// ruleText returns a rule in words.
export function ruleText({verbs = [], apiGroups = [], resources = [], resourceNames = [], nonResourceURLs = []}) {
  const verb = all(verbs, "do everything with");
  if (nonResourceURLs.length > 0) return `${verb} the paths ${list(nonResourceURLs)}`;
  const core = apiGroups.every((g) => g === "");
  const of = apiGroups.includes("*") ? " of all API groups" : core ? "" : ` of ${list(apiGroups.map((g) => g || "the core group"))}`;
  return `${verb} ${all(resources, "all resources")}${of}${resourceNames.length > 0 ? ` with the names ${list(resourceNames)}` : ""}`;
}

export const subjectText = ({kind, namespace, name}) => (kind === "ServiceAccount" ? `ServiceAccount ${namespace ? `${namespace}/` : ""}${name}` : `${kind} ${name}`);

export const referenceText = ({kind, namespace, name}) => `${kind} ${name}${namespace ? ` in namespace ${namespace}` : ""}`;

const roles = {Role: true, ClusterRole: true};
const bindings = {RoleBinding: true, ClusterRoleBinding: true};

// grantsOf returns what a rendered ManifestWork grants: a sentence for each rule and each subject. The keys are exact.
export function grantsOf(work) {
  const out = new Map();
  for (const object of work?.spec?.workload?.manifests ?? []) {
    const {kind, metadata = {}} = object;
    const where = metadata.namespace ? `in namespace ${metadata.namespace}` : "in all namespaces";
    const add = (grant, text) => out.set(JSON.stringify([kind, metadata.namespace, grant]), text);
    if (roles[kind]) for (const rule of object.rules ?? []) add([metadata.name, rule], `${kind} ${metadata.name} ${where} allows to ${ruleText(rule)}`);
    else if (bindings[kind]) for (const subject of object.subjects ?? []) add([object.roleRef, subject], `${subjectText(subject)} gets the ${object.roleRef?.kind} ${object.roleRef?.name} ${where}`);
    else add(metadata.name, `${kind} ${metadata.namespace ? `${metadata.namespace}/` : ""}${metadata.name}`);
  }
  return out;
}
