// Package localhub starts a complete hub on one machine: Kubernetes control planes
// (etcd, kube-apiserver and kube-controller-manager of bin/devhub), our apiserver
// registered behind the hub's aggregation layer, and our agents. Only this package
// starts processes; `make run`, the integration and conformance tests and the
// benchmarks all use it.
//
// It does not use controller-runtime's envtest, which starts no controller
// manager, keeps no data, and cannot kill a server and start it again with the
// same data and port. Our tests require all three.
//
// # Layers
//
// A [Process] is one running program. A [Cluster] is one control plane in one
// directory. An [APIServer] is our apiserver behind a hub. A [Fleet] is a hub with
// its apiserver, and managed clusters with their agents.
//
// Clusters join a hub in one of two ways. With [JoinByRegistration], which `make run`
// uses, each cluster joins as docs/registration.md describes: a [Clusteradm] runs init,
// join and accept, and the only credentials of an agent are the bootstrap kubeconfig
// that join wrote. For tests of other features, an administrator accepts the cluster
// with [JoinCluster], and the hub's authority signs a certificate for the agent. [EKS]
// makes a cluster an EKS cluster of a fakeaws server.
//
// # Guarantees
//
// Every server listens on 127.0.0.1, on the address of its [Host] or on a Unix socket. Ports are chosen when the
// object is created, and stay the same over restarts. The cluster's directory contains
// the keys, the certificates and the port. A new object with the same directory
// therefore finds its data, and existing credentials stay valid. It chooses another
// port only if another process uses the port in the meantime.
//
// On Linux, a process that this package started ends with the program that started
// it, even if that program is killed. This package never signals a process that it did
// not start.
//
// The controller manager's garbage collector detects a newly served API group within
// 30 seconds, as on any cluster. A test that cannot wait restarts
// Cluster.ControllerManager after [APIServer.Register].
package localhub
