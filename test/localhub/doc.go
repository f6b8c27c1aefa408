// Package localhub starts a whole hub on one machine: real Kubernetes control
// planes (etcd, kube-apiserver and kube-controller-manager of bin/devhub), our
// apiserver registered behind the hub's aggregation layer, and our agents. It
// is the one place that starts processes; `make run`, the integration and
// conformance tests and the benchmarks all use it.
//
// It does not use controller-runtime's envtest, which starts no controller
// manager, keeps no data, and cannot kill a server and start it again on the
// same data and port. Those three are what our tests are about.
//
// # Layers
//
// A [Process] is one running program. A [Cluster] is one control plane in one
// directory. An [APIServer] is our apiserver in front of a hub. A [Fleet] is
// all of it: a hub with its apiserver, and managed clusters with their agents.
//
// Clusters join a hub in one of two ways. With [JoinByRegistration], as `make run` has
// it, each does what docs/registration.md says: a [Clusteradm] runs init, join and
// accept, and agents have nothing but the bootstrap kubeconfig that join wrote. For
// tests of other things, [JoinCluster] has an administrator accept the cluster, and an
// agent gets a certificate that the hub's authority signs. [EKS] makes a cluster one of
// EKS for a server that stands for AWS.
//
// # What to expect
//
// Every server listens on 127.0.0.1 or on a Unix socket, on ports chosen when
// the object is made, which stay the same over any number of restarts. Keys
// and certificates are made at run time and kept in the cluster's directory,
// and so is the port, so that an object made anew on the same directory finds
// its data, and credentials handed out before go on working. Only when
// something else has taken the port meanwhile, another one is chosen.
//
// A process that this package started dies with the program that started it,
// even if that is killed (on Linux), and this package never signals a process
// that it did not start.
//
// The controller manager's garbage collector learns of a newly served API
// group within 30 seconds, as on any cluster; a test that cannot wait restarts
// Cluster.ControllerManager after [APIServer.Register].
package localhub
