// Package replicas tests three replicas of the server on an etcd cluster of three members, behind the aggregation
// layer of a hub. Requests must not fail while replicas are restarted, added and removed, and while certificates are
// replaced. Faults are in test/campaign. Hosts are network namespaces, which require root.
package replicas
