// Package preflight checks the permissions of executors before their ManifestWorks are applied. A
// ManifestWork acts with the permissions of the ServiceAccount that it names, and with no others.
//
// Before a ManifestWork reads or writes an object, the agent checks on the managed cluster that the
// executor is allowed every request that the lifecycle of each manifest requires. If one request is
// denied, the agent applies none of the manifests. After that, the agent impersonates the executor,
// so the API server authorizes every request again and audits it for the executor. Mode Review is
// for agents that cannot impersonate. In this mode, the first check is the only one, and the agent
// acts as itself.
//
// Roles and bindings grant permissions to others. Writing one requires that the executor holds
// these permissions, or the verb escalate or bind. In mode Review, no API server checks this. So
// this package makes the same decision as the API server, or a stricter one where the outcome
// depends on the order of writes.
package preflight
