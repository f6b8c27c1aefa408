#!/usr/bin/env bash
# Installs the programs of a node for test/node, if they are missing: containerd, runc, the CNI plugins, nft and ip. It
# also raises the number of inotify instances until the next boot: the programs of a cluster use about 30.
#
#   root, or sudo without a password   installs Debian's packages. It starts no containerd
#   otherwise                          says what to do, and fails
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin

missing=()
require() { # PACKAGE FILE...: one of the programs, on the PATH or absolute
  local package=$1 file
  for file in "${@:2}"; do
    if command -v "$file" >/dev/null; then
      return
    fi
  done
  missing+=("$package")
}
require containerd containerd
require containerd containerd-shim-runc-v2
require runc runc
require containernetworking-plugins /usr/lib/cni/bridge /opt/cni/bin/bridge
require nftables nft
require iproute2 ip
instances=/proc/sys/fs/inotify/max_user_instances
if ((${#missing[@]} == 0 && $(<$instances) >= 512)); then
  exit 0
fi

fail() {
  echo "install-node: $1" >&2
  ((${#missing[@]} == 0)) || echo "Install ${missing[*]}, or the same programs from other packages." >&2
  exit 1
}
as_root=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
    fail "this user is not root and has no sudo without a password"
  fi
  as_root=(sudo -n)
fi
if (($(<$instances) < 512)); then
  echo "==> setting fs.inotify.max_user_instances to 512, from $(<$instances)"
  "${as_root[@]}" tee $instances >/dev/null <<<512 || fail "this machine does not allow it"
fi
if ((${#missing[@]} == 0)); then
  exit 0
fi
if ! command -v apt-get >/dev/null; then
  fail "this is not a Debian system"
fi
echo "==> installing ${missing[*]} with apt-get"
# The tests start a containerd of their own. Without a mask, the package would start one of the machine.
masked=
if [[ -d /run/systemd/system ]] && ! systemctl cat containerd.service >/dev/null 2>&1; then
  "${as_root[@]}" systemctl mask --runtime --quiet containerd.service
  masked=1
fi
"${as_root[@]}" apt-get update || fail "apt-get update failed"
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "${missing[@]}" || fail "apt-get cannot install them"
[[ -z $masked ]] || "${as_root[@]}" systemctl unmask --runtime --quiet containerd.service
echo "    done"
