// Package registration makes a managed cluster a member of its hub, and keeps it one.
//
// What the cluster is on the hub is in one Secret of the managed cluster: its name, the
// name of the agent, and the credentials. Everything else can be lost at any time.
//
//	Secret usable? ──no──► bootstrap kubeconfig: ManagedCluster, then by the driver
//	      │                  csr:      a request for a client certificate, until it is signed
//	      │                  aws-irsa: a claim, until the hub has accepted it
//	     yes ◄──────────── Secret, and its files
//	      │
//	own ManagedCluster: accepted ──► serve: works and all, lease, status, renewal
//	                    denied   ──► nothing; what was applied stays
//	                    deleted  ──► serve until the hub has deleted what it delivered,
//	                                 then the rest is removed, without the hub
//	                    401      ──► bootstrap again, under the same names; if the
//	                                 ManagedCluster is gone, it waits
//	                    403      ──► nothing; it says so
//
// Of the hub it asks only what Open Cluster Management grants to bootstrap identities and to
// clusters, so that it joins any such hub.
package registration
