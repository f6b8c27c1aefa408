#!/usr/bin/env bash
# Builds bin/devhub, one binary that contains etcd, kube-apiserver, kube-controller-manager
# and kubectl, and a link to it for each of these names. It does nothing if the binary is
# up to date.
#
#   hack/build-devhub.sh                       the hub of go.mod, into bin/
#   KUBE_VERSION=1.35.4 hack/build-devhub.sh   the older hub of kube-1.35.mod, into bin/kube-1.35.4/
#   hack/build-devhub.sh COMMAND...            also runs a command that builds the other programs. It starts
#                                              when the hub is compiled, because the linker uses one core
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

# The stamp identifies all inputs of the build.
stamp=$(cat "$src"/*.go "$src/$modfile" "$src/${modfile%.mod}.sum" hack/build-devhub.sh | sha256sum | cut -d' ' -f1)
stamp+=" $(go env GOVERSION GOOS GOARCH | tr '\n' ' ')"
current() { # reports whether the binary is up to date
  [[ -x $out/devhub && -x $out/kubectl && -f $out/devhub.stamp ]] && [[ $(<"$out/devhub.stamp") == "$stamp" ]]
}
current && exec "${@:-true}"

mkdir -p "$out"
exec 9>"$out/.devhub.lock"
if command -v flock >/dev/null && ! flock -n 9; then
  echo "==> waiting for another build of $out/devhub"
  flock 9
fi
current && exec "${@:-true}" 9>&-

# Compilers and linkers are short processes: collect garbage less often.
export GOGC=${GOGC:-400}
trap 'kill $(jobs -pr) 2>/dev/null || true; rm -f "$out/devhub.new"' EXIT
echo "==> building $out/devhub: etcd, kube-apiserver, kube-controller-manager and kubectl $version"
echo "    the first build takes about 5 minutes on two idle cores"
begin=$SECONDS
# The standard library needs no download, so it compiles meanwhile.
go build net/http/pprof html/template 9>&- &
standard=$!
total=$(cd "$src" && go list -modfile="$modfile" -deps . 2>/dev/null | wc -l) || true # go build reports the error
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

log=$out/devhub.build.log
(cd "$src" && exec go build -v -tags=grpcnotrace -modfile="$modfile" -ldflags "$ldflags" -o "../../$out/devhub.new" .) >"$log" 2>&1 9>&- &
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
  if [[ -z $command ]] && (($# > 0)) && grep -qx 'open-cluster-management.io/hub-apiserver/hack/devhub' "$log"; then
    echo "    $((SECONDS - begin)) s: linking $out/devhub"
    "$@" 9>&- &
    command=$!
  fi
  if [[ -z $command ]] && ((SECONDS - begin >= next)); then
    next=$((next + 15))
    # go build does not list packages from the build cache, so the count may stay below the total.
    echo "    $((SECONDS - begin)) s: $(grep -c '/' "$log" || true) of at most $total packages compiled"
  fi
done
if ! wait "$build"; then
  echo "build-devhub: go build failed; the end of $log:" >&2
  tail -n 20 "$log" >&2
  exit 1
fi
mv "$out/devhub.new" "$out/devhub"
for name in etcd kube-apiserver kube-controller-manager kubectl; do
  ln -sfn devhub "$out/$name"
done
echo "$stamp" >"$out/devhub.stamp"
echo "    done in $((SECONDS - begin)) s: $out/devhub, $(($(wc -c <"$out/devhub") / 1000000)) MB, Kubernetes $version"
if [[ -n $command ]]; then
  wait "$command"
else
  "$@"
fi
