#!/usr/bin/env bash
# Fails on what staticcheck finds, on an import that docs/where-is.md forbids, and
# on packages whose name says nothing.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
hack/install-tools.sh

packages=$(go list ./... | grep -v /pkg/generated/)

echo "== package names"
if grep -E '/(util|utils|common|helper|helpers|manager)(/|$)' <<<"$packages"; then
	echo "name these after what is in them" >&2
	exit 1
fi

echo "== imports"
# shellcheck disable=SC2086 # one argument a package
bin/tools/depguard $packages

echo "== staticcheck"
# shellcheck disable=SC2086
bin/tools/staticcheck $packages
