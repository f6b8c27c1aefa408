// Package node starts real nodes for the clusters of test/localhub: kubelet, kube-proxy and kube-scheduler of
// bin/devnode, and containerd, runc, the CNI plugins and nft of this machine, which hack/install-node.sh installs. Pods
// are then real, with their cgroups, volumes, probes and networks.
//
// # Sandbox
//
// Each node has network, UTS, mount and PID namespaces of its own. The control plane of its cluster runs in its network
// and UTS namespaces, and survives a crash of the node. The directories that containerd, kubelet and CNI use are below
// the directory of the node. Files cover the sysctls that kubelet would otherwise change for all of this machine.
// What remains visible on this machine: one veth interface to the nodes, whose addresses are 10.200.0.0/16 and
// following, and cgroups with the name hub-node-*. The kernel removes the interface when the program ends that started
// the nodes, however it ends, and the next Network with the same number removes the cgroups.
//
// # Requirements
//
// [Missing] returns why a machine cannot run nodes. A test that skips for this reason prints NOT TESTED and the reason,
// which make test-node repeats at the end.
package node
