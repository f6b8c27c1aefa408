// Package install installs hubs and agents from the manifests, as users do, and runs their containers
// with test/kubelet.
package install
