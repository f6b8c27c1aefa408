// Package rehoming contains what hubs and agents share to move managed clusters to another hub: the epoch, by which an
// agent recognizes the hub that it must obey, and the proof, by which a hub recognizes the agent of an adopted cluster.
//
//	agent, while the hub lives ──► claim with the hash of its rehoming key ──► export
//	adopt ──► registration with the hash, ManagedCluster with a higher epoch
//	agent ──► certificate request with a proof by that key ──► approved without a human
package rehoming
