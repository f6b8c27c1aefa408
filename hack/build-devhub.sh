#!/usr/bin/env bash
# Builds bin/devhub, one binary that contains etcd, kube-apiserver, kube-controller-manager
# and kubectl, and a link to it for each of these names. It does nothing if the binary is
# up to date.
#
#   hack/build-devhub.sh                       the hub of go.mod, into bin/
#   KUBE_VERSION=1.35.4 hack/build-devhub.sh   the older hub of kube-1.35.mod, into bin/kube-1.35.4/
#   hack/build-devhub.sh COMMAND...            also runs a command that builds the other programs. It starts
#                                              when the hub is compiled, because the linker uses one core
#   PROGRAMS=node hack/build-devhub.sh         bin/devnode instead: kubelet, kube-proxy and kube-scheduler, and
#                                              bin/pause, the program of the sandbox containers
#
# If KUBEBUILDER_ASSETS or the PATH has all programs in exactly these versions, or they can be downloaded with
# their checksums, it links or stores them in bin/ instead. HUB_PROGRAMS=build always builds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# As in the Makefile, so that all builds share the compiled packages.
export CGO_ENABLED=0

src=hack/devhub
required() { # FILE: the Kubernetes version that this module file requires, without the v
  sed -nE 's/^\tk8s\.io\/kubernetes v([0-9][^ ]*).*/\1/p' "$src/$1" | head -n 1
}
modfile=go.mod
version=$(required go.mod)
out=bin
wanted=${KUBE_VERSION:-$version}
wanted=${wanted#v}
if [[ $wanted != "$version" ]]; then
  modfile=kube-${wanted%.*}.mod
  if [[ ! -f $src/$modfile || $(required "$modfile") != "$wanted" ]]; then
    echo "build-devhub: no module file in $src requires Kubernetes $wanted: set KUBE_VERSION to one of" \
      "$(for file in "$src"/*.mod; do required "${file##*/}"; done | xargs)" >&2
    exit 2
  fi
  version=$wanted
  out=bin/kube-$version
fi

name=devhub package=. programs=(etcd kube-apiserver kube-controller-manager kubectl)
if [[ ${PROGRAMS:-} == node ]]; then
  name=devnode package=./node programs=(kubelet kube-proxy kube-scheduler)
fi

# The stamp identifies all inputs of the build.
stamp=$(cat "$src/$package"/*.go "$src/$modfile" "$src/${modfile%.mod}.sum" hack/build-devhub.sh | sha256sum | cut -d' ' -f1)
stamp+=" $(go env GOVERSION GOOS GOARCH | tr '\n' ' ')"
current() { # reports whether the programs are up to date
  [[ -x $out/${programs[0]} && -x $out/${programs[-1]} && -f $out/$name.stamp ]] && [[ $(<"$out/$name.stamp") == "$stamp" ]]
}
etcd=$(sed -nE 's/^\tgo\.etcd\.io\/etcd\/server\/v3 v([0-9][^ ]*).*/\1/p' "$src/$modfile")
installed() { # PROGRAM: its path on this machine, if it has exactly the version that is needed
  local path
  path=$(PATH="${KUBEBUILDER_ASSETS:-}:$PATH" type -P "$1") || return 1
  [[ $path -ef $out/$1 ]] && return 1
  case $1 in
    etcd) "$path" --version 2>/dev/null | grep -qxF "etcd Version: $etcd" ;;
    kubectl) "$path" version --client 2>/dev/null | grep -qxF "Client Version: v$version" ;;
    *) "$path" --version 2>/dev/null | grep -qxF "Kubernetes v$version" ;;
  esac && realpath "$path"
}
use_installed() { # links the programs of this machine into $out, or fails
  local i path found=()
  for i in "${programs[@]}"; do
    path=$(installed "$i") || return 1
    found+=("$path")
  done
  echo "==> using the programs of Kubernetes $version of this machine: ${found[*]}"
  for i in "${!programs[@]}"; do
    ln -sfn "${found[$i]}" "$out/${programs[$i]}"
  done
}
download() { # downloads the programs into $out and checks their checksums, or fails without output
  command -v curl >/dev/null && command -v sha256sum >/dev/null || return 1
  local i platform kube=${KUBE_DOWNLOAD_URL:-https://dl.k8s.io} github=${ETCD_DOWNLOAD_URL:-https://github.com/etcd-io/etcd/releases/download}
  platform=$(go env GOOS)/$(go env GOARCH)
  [[ $platform == linux/* ]] || return 1 # there is no kube-apiserver for other systems
  rm -rf "$out/download" && mkdir "$out/download"
  get() { curl --fail --silent --location --connect-timeout 5 --max-time 300 --output "$out/download/$1" "$2"; }
  local kubernetes=("${programs[@]}")
  [[ ${programs[0]} != etcd ]] || kubernetes=("${programs[@]:1}")
  for i in "${kubernetes[@]}"; do
    get "$i.sha256" "$kube/v$version/bin/$platform/$i.sha256" || return 1
  done
  echo "==> downloading ${programs[*]} of Kubernetes $version"
  for i in "${kubernetes[@]}"; do
    get "$i" "$kube/v$version/bin/$platform/$i" || return 1
    (cd "$out/download" && echo "$(<"$i.sha256")  $i" | sha256sum --check --quiet) || return 1
  done
  if [[ ${programs[0]} == etcd ]]; then
    i=etcd-v$etcd-${platform/\//-}
    get SHA256SUMS "$github/v$etcd/SHA256SUMS" && get "$i.tar.gz" "$github/v$etcd/$i.tar.gz" || return 1
    (cd "$out/download" && grep -F " $i.tar.gz" SHA256SUMS | sha256sum --check --quiet && tar -xzf "$i.tar.gz" --strip-components=1 "$i/etcd") || return 1
  fi
  for i in "${programs[@]}"; do
    chmod +x "$out/download/$i" && mv -f "$out/download/$i" "$out/$i"
  done
  rm -rf "$out/download"
}
current && exec "${@:-true}"

mkdir -p "$out"
exec 9>"$out/.devhub.lock"
if command -v flock >/dev/null && ! flock -n 9; then
  echo "==> waiting for another build of $out/$name"
  flock 9
fi
current && exec "${@:-true}" 9>&-

if [[ $name == devnode ]]; then
  (cd "$src" && go build -ldflags "-s -w" -o "../../$out/pause" ./node/pause)
fi
if [[ ${HUB_PROGRAMS:-} != build ]] && { use_installed || download; }; then
  echo "$stamp" >"$out/$name.stamp"
  exec "${@:-true}" 9>&-
fi
rm -rf "$out/download"

# Compilers and linkers are short processes: collect garbage less often.
export GOGC=${GOGC:-400}
trap 'kill $(jobs -pr) 2>/dev/null || true; rm -f "$out/$name.new"' EXIT
echo "==> building $out/$name: ${programs[*]} $version"
echo "    this machine does not have them, and they cannot be downloaded. The first build takes 5 to 17 minutes on two cores"
begin=$SECONDS
# The standard library needs no download, so it compiles meanwhile.
go build net/http/pprof html/template 9>&- &
standard=$!
total=$(cd "$src" && go list -modfile="$modfile" -deps "$package" 2>/dev/null | wc -l) || true # go build reports the error
minor=${version#*.}
minor=${minor%%.*}
# The date of the release, not of this build, so that builds are reproducible.
date=$(cd "$src" && go list -modfile="$modfile" -m -f '{{with .Time}}{{.UTC.Format "2006-01-02T15:04:05Z"}}{{end}}' k8s.io/kubernetes)
ldflags="-s -w"
for pkg in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  ldflags+=" -X $pkg.gitVersion=v$version -X $pkg.gitMajor=${version%%.*} -X $pkg.gitMinor=$minor"
  # A module has no commit.
  ldflags+=" -X $pkg.gitCommit= -X $pkg.gitTreeState=archive -X $pkg.buildDate=${date:-1970-01-01T00:00:00Z}"
done
# Two builds at the same time would compile the same packages.
wait "$standard"

log=$out/$name.build.log
(cd "$src" && exec go build -v -tags=grpcnotrace -modfile="$modfile" -ldflags "$ldflags" -o "../../$out/$name.new" "$package") >"$log" 2>&1 9>&- &
build=$!
if (($# > 0)); then
  # Downloads the modules of the command while the hub compiles. The command reports errors.
  go list -deps ./cmd/... ./hack/run >/dev/null 2>&1 9>&- &
fi
next=15
command=
while kill -0 "$build" 2>/dev/null; do
  sleep 0.2
  # The main package is the last one before the linker.
  if [[ -z $command ]] && (($# > 0)) && grep -qx "open-cluster-management.io/hub-apiserver/hack/devhub${package#.}" "$log"; then
    echo "    $((SECONDS - begin)) s: linking $out/$name"
    "$@" 9>&- &
    command=$!
  fi
  if [[ -z $command ]] && ((SECONDS - begin >= next)); then
    next=$((next + 15))
    # go build does not list packages from the build cache, so the count may stay below the total.
    compiled=$(grep -c '/' "$log" || true)
    left=
    # The first packages take as long on average as the others, and linking as long as a tenth of them.
    ((compiled < 100)) || left=", about $(((SECONDS - begin) * (total - compiled) * 11 / compiled / 600 + 1)) minutes left"
    echo "    $((SECONDS - begin)) s: $compiled of at most $total packages compiled$left"
  fi
done
if ! wait "$build"; then
  echo "build-devhub: go build failed; the end of $log:" >&2
  tail -n 20 "$log" >&2
  exit 1
fi
mv "$out/$name.new" "$out/$name"
for i in "${programs[@]}"; do
  ln -sfn "$name" "$out/$i"
done
echo "$stamp" >"$out/$name.stamp"
echo "    done in $((SECONDS - begin)) s: $out/$name, $(($(wc -c <"$out/$name") / 1000000)) MB, Kubernetes $version"
if [[ -n $command ]]; then
  wait "$command"
else
  "$@"
fi
