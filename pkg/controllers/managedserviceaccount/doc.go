// Package managedserviceaccount contains the controllers of ManagedServiceAccounts on the hub. The
// agents manage the ServiceAccounts and tokens. This package contains
//
//   - placement.go: the namespaces in which accounts may be created, checked in the request;
//   - replicas.go: the replicas of an account of cluster sets on every cluster, and their summary;
//   - expiration.go: the deletion of accounts after their TTL, and the expiration of tokens;
//   - agentrole.go: the Role that allows an agent to read the Secrets of its accounts only;
//   - secretstatus.go: the status of accounts whose Secret another client deleted or changed. Agents
//     may not watch Secrets;
//   - secretgc.go: the deletion of Secrets of deleted accounts.
//
// The controllers run on one replica at a time.
package managedserviceaccount
