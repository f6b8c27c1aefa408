// Package clusterclient lets a program on the hub send requests to managed clusters as a ManagedServiceAccount. The
// agent of the cluster keeps the token of the account in a Secret on the hub.
//
//	hub, err := clusterclient.NewHub(hubConfig)
//	source, err := hub.Source("cluster1", "robot", clusterclient.Options{})
//	go source.Run(ctx)
//	config, err := source.Config(ctx) // waits until there is a token
//	client, err := kubernetes.NewForConfig(config)
//
// Clients of such a configuration continue to work when the agent replaces the token or the CA bundle: the source watches
// the Secret, and each request uses the current content. A request waits for the hub only after the cluster returned 401
// or its certificate did not verify. Then the source reads the Secret again, and retries once with new content.
//
// # Required permissions on the hub
//
// For a source: get, list and watch on secrets and on managedclusters.cluster.open-cluster-management.io. Rules with
// the resourceNames of one account and one cluster are sufficient. With [Options].Host, the rule for managedclusters is
// not required.
package clusterclient
