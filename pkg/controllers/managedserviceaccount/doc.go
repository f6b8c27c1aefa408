// Package managedserviceaccount contains the controllers of ManagedServiceAccounts on the hub. The
// agents manage the ServiceAccounts and tokens. This package contains
//
//   - placement.go: the namespaces in which accounts may be created, checked in the request;
//   - replicas.go: the replicas of an account of cluster sets on every cluster, and their summary;
//   - agentrole.go: the Role that allows an agent to read the Secrets of its accounts only;
//   - upkeep.go: the deletion of accounts after their TTL, the expiration of tokens, and Secrets that other clients
//     deleted or changed, or whose account is deleted.
//
// The controllers run on one replica at a time.
package managedserviceaccount
