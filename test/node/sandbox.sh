# Prepares the mounts of a node, and is process 1 of its PID namespace: sandbox.sh DIRECTORY
set -euo pipefail
mount --make-rprivate /
mount -t proc proc /proc
for path in /var/lib/kubelet /var/lib/containerd /var/lib/cni /etc/cni /var/log/pods /var/log/containers; do
  mkdir -p "$1$path" "$path"
  mount --bind "$1$path" "$path"
done
# As after a boot, /run is empty.
for path in /run/containerd /run/netns; do
  mkdir -p "$path"
  mount -t tmpfs tmpfs "$path"
done
# The values that kubelet wants, and would set for all of this machine.
mkdir -p "$1/sysctl"
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
  kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
  name=${setting%=*}
  echo "${setting#*=}" >"$1/sysctl/${name//\//.}"
  mount --bind "$1/sysctl/${name//\//.}" "/proc/sys/$name"
done
ip link set lo up
echo ready
# The shell reaps the processes whose parents have ended. The end of the input is the end of the test program.
while read -r _; do :; done
