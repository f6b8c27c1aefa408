// Package executor lets ManifestWorks act with the permissions of the
// ServiceAccount that they name, and no more.
//
// Before a work reads or writes anything, the managed cluster is asked for every
// manifest whether the executor may do all that the life of the object takes. One
// denial keeps the whole work from acting. After that the work acts as the executor,
// by impersonation, so the API server of the managed cluster judges every request
// again, and its audit log names who made it. Where an agent may not impersonate,
// mode Review leaves it at the first judgement, and the agent acts as itself.
//
// Roles and bindings give to others, which takes more than the verbs: whoever
// writes one must hold what it gives, or have the verb escalate or bind. In mode
// Review nobody but this package would notice, so the judgement here is that of
// the API server, or stricter where the outcome depends on what is written first.
package executor
