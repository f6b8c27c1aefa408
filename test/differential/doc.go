// Package differential compares what the agent says that executors may do with
// what a real kube-apiserver lets them do.
//
// A triple is a random RBAC policy, an executor and a work of one manifest or
// two. The agent's check is used as a library, as the agent runs it in mode
// Impersonate. What it says is compared with what becomes of the requests that
// applying the work takes, sent as the executor by impersonation: dry runs where
// they write, since those are authorized, and judged for escalation, as others are.
//
// A wrong allow is a work that is admitted though one of its requests is
// forbidden; there may be none. A wrong deny is a work that is refused though all
// requests that its strategy makes would pass. Those have causes that are
// wanted, which costs of type explains; any other is a failure.
//
// Policies change between triples while the executor stays the same, so answers
// that the agent keeps must be forgotten when they stop to hold.
//
//	EXECUTOR_TRIPLES  triples that are compared; 1000 if not given
//	EXECUTOR_SEED     seed of everything random; 1 if not given
package differential
