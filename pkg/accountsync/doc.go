// Package accountsync is what the hub does for ManagedServiceAccounts beside
// storing them. The agents keep the ServiceAccounts and tokens; here is
//
//   - placement.go: which namespaces accounts may be in, asked in the request;
//   - replicate.go: accounts of cluster sets, one on every cluster, and their summary;
//   - expire.go: accounts that are due to be deleted, tokens that have run out;
//   - access.go: the Role by which an agent reads the Secrets of its accounts and no others;
//   - observe.go: Secrets that somebody deleted or changed, of which agents are told,
//     since they may not watch Secrets;
//   - collect.go: Secrets of accounts that are gone, where the hub does not collect them.
//
// The loops run on one replica at a time.
package accountsync
