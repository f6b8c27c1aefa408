// Package kubelet runs the Pods of a cluster of test/localhub as processes of this machine, as their
// manifests describe: command, arguments, environment, user, volumes and probes. A test with
// it runs the manifests that users install.
//
// Each Pod has network and mount namespaces of its own, and a root directory that contains only
// the program of its image. Its ports are reachable only through the hub: kube-apiserver connects to
// Services through a proxy of this package (--egress-selector-config-file).
//
// A field that the package does not support fails the Pod, so that no setting is ignored without
// notice. It requires Linux and root.
package kubelet
