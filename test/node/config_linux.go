package node

// The files of a node, with placeholders.
const (
	// containerdConfig adjusts no score of the OOM killer below that of containerd, because a machine without
	// CAP_SYS_RESOURCE denies it, and runc then fails with "can't get final child's PID from pipe".
	containerdConfig = `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{{Pause}}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{{Plugins}}"
    conf_dir = "/etc/cni/net.d"
`

	// kubeletConfig never removes images, because no registry has them.
	kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: {{Address}}
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: {{ClientCA}}}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /{{Group}}
# Without a server, kubelet would warn at each Pod.
clusterDNS: [10.0.0.10]
clusterDomain: cluster.local
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: [pods]
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
maxPods: 50
oomScoreAdj: 0
resolvConf: {{Directory}}/resolv.conf
volumePluginDir: /var/lib/kubelet/volume-plugins
`

	// proxyConfig leaves the limits of the connection tracking of this machine.
	proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: {{Proxy}}}
clusterCIDR: {{Pods}}
hostnameOverride: {{Name}}
bindAddress: {{Address}}
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
conntrack: {maxPerCore: 0, min: 0, tcpCloseWaitTimeout: 0s, tcpEstablishedTimeout: 0s}
oomScoreAdj: 0
`

	// cniConfig connects Pods over a bridge, from which the node forwards without address translation.
	cniConfig = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "ipMasq": false,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "{{Pods}}"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
`
)
