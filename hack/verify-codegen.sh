#!/usr/bin/env bash
# Fails if hack/update-codegen.sh would change a file.
set -o errexit -o nounset -o pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

cp -r "$root"/go.mod "$root"/go.sum "$root"/hack "$root"/pkg "$copy"
mkdir "$copy/docs"
GOBIN=$root/bin/tools "$copy/hack/update-codegen.sh" >"$copy/log" 2>&1 || {
	cat "$copy/log" >&2
	exit 1
}
if ! diff -r "$root/pkg" "$copy/pkg" || ! diff "$root/hack/api-violations.list" "$copy/hack/api-violations.list" ||
	! diff "$root/docs/api-reference.md" "$copy/docs/api-reference.md"; then
	echo "generated code is out of date: run make generate" >&2
	exit 1
fi
