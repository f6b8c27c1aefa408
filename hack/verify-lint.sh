#!/usr/bin/env bash
# Fails on a finding of .golangci.yaml (formatting, vet, staticcheck, import rules and others), on an import rule
# that does not hold, and on a package name that says nothing.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
hack/install-tools.sh

echo "== package names"
if go list ./... | grep -E '/(util|utils|common|helper|helpers|manager)(/|$)'; then
	echo "name each package after its contents" >&2
	exit 1
fi

echo "== import rules"
hack/verify-imports.sh

echo "== golangci-lint"
bin/tools/golangci-lint run --allow-parallel-runners ./...
bin/tools/golangci-lint fmt --diff
