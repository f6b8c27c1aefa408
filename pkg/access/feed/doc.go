// Package feed fills the index of the RBAC of the fleet. Each replica of the server has its own index and its own feed.
//
//	reports of clusters → search engine ──Internal, Changes──► Feed ──► access.Index
//	informers of the hub → visibility.Compiler ─────────────────────────────┘
//
// At the start, the Feed reads the roles and bindings of each cluster. It follows the changes of the engine, and reads a
// cluster again after each change of its RBAC. A cluster is Known while its AccessReport says that its RBAC is complete,
// the number of objects agrees, the cluster is not silent, and the Feed is not behind. What a cluster reports affects only
// the entry of that cluster. Reports never affect the entry of the hub: it comes from informers.
package feed
