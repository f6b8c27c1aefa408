// Package membership registers a managed cluster with its hub, and keeps it registered.
//
// One Secret on the managed cluster contains the identity of the cluster on the hub: its name, the
// name of the agent, and the credentials. All other state can be lost at any time.
//
//	Secret usable? ──no──► bootstrap kubeconfig: ManagedCluster, then by the driver
//	      │                  csr:      a request for a client certificate, until it is signed
//	      │                  aws-irsa: a claim, until the hub has accepted it
//	     yes ◄──────────── Secret and its files
//	      │
//	own ManagedCluster: accepted ──► serve: controllers, lease, status, renewal
//	                    denied   ──► idle; applied objects stay
//	                    deleted  ──► serve until the hub has deleted what it delivered,
//	                                 then remove the rest without the hub
//	                    401      ──► bootstrap again under the same names; if the
//	                                 ManagedCluster does not exist, wait
//	                    403      ──► idle, with a message
//
// It requires only the permissions that Open Cluster Management grants to bootstrap identities and
// to clusters, so that it can join any such hub.
package membership
