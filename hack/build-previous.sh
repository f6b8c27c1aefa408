#!/usr/bin/env bash
# Builds the apiserver, the agent and clusteradm of the previous release, with its manifests, into
# bin/previous. PREVIOUS is its tag or commit. The default is the newest release tag in the history of
# HEAD, without a tag of HEAD itself.
set -euo pipefail
cd "$(dirname "$0")/.."

# Before the first release, the first commit that builds releases stands for the previous release.
FIRST=d606c8bc5f41

previous=${PREVIOUS:-$(git describe --tags --abbrev=0 --match 'v[0-9]*' HEAD^ 2>/dev/null || echo "$FIRST")}
commit=$(git rev-parse --verify --quiet "$previous^{commit}") || {
  echo "build-previous: $previous is not in this clone: run git fetch --unshallow --tags, or set PREVIOUS" >&2
  exit 1
}
out=bin/previous
if [[ $(cat $out/commit 2>/dev/null) == "$commit" ]]; then
  exit 0
fi
echo "== building the programs of $previous ($commit) into $out"
rm -rf $out
mkdir -p $out/source
git archive "$commit" | tar -x -C $out/source
version=$(git describe --tags --abbrev=12 --match 'v[0-9]*' "$commit" 2>/dev/null || echo "v0.0.0-${commit:0:12}")
stamp=k8s.io/component-base/version
(cd $out/source && CGO_ENABLED=0 go build -buildvcs=false \
  -ldflags "-s -w -X $stamp.gitVersion=v1.37.2+hub-apiserver.$version -X $stamp.gitMajor=1 -X $stamp.gitMinor=37 -X $stamp.gitCommit=$commit" \
  -o ../ ./cmd/apiserver ./cmd/agent ./cmd/clusteradm)
rm -rf $out/source
echo "$commit" > $out/commit
