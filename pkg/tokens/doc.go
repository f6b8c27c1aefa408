// Package tokens lets a program on the hub talk to managed clusters as a
// ManagedServiceAccount, whose token the agent of the cluster keeps in a Secret
// on the hub.
//
//	hub, err := tokens.NewHub(hubConfig)
//	source, err := hub.Source("cluster1", "robot", tokens.Options{})
//	go source.Run(ctx)
//	config, err := source.Config(ctx) // waits until there is a token
//	client, err := kubernetes.NewForConfig(config)
//
// Clients that are made from such a configuration go on working when the agent
// replaces the token or the CA bundle: the source watches the one Secret and
// every request takes what is current. No request waits for the hub, except one
// that the cluster refused as unauthenticated or whose certificate did not
// verify: then the Secret is read once more, and what it newly says is tried once.
//
// [Hub.List] finds accounts, among them those that the server keeps on every
// cluster of a set.
//
// # What the hub must allow
//
// For a source: get, list and watch on secrets and on
// managedclusters.cluster.open-cluster-management.io. Rules with the
// resourceNames of the one account and the one cluster suffice; the latter is
// not needed at all with [Options].Host. For List: list on
// managedserviceaccounts.authentication.open-cluster-management.io in all
// namespaces; with a name in its options, a rule with that resourceName suffices.
package tokens
