#!/usr/bin/env bash
# Runs every verifier, and names those that failed.
set -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

failed=()
step() {
	local name=$1 begin=$SECONDS
	shift
	echo "== verify $name"
	if "$@"; then
		echo "   $name: ok ($((SECONDS - begin)) s)"
	else
		echo "   $name: FAILED ($((SECONDS - begin)) s)"
		failed+=("$name")
	fi
}
step format hack/verify-format.sh
step mod hack/verify-mod.sh
step vet go vet ./...
step lint hack/verify-lint.sh
step codegen hack/verify-codegen.sh

if [ ${#failed[@]} -gt 0 ]; then
	echo "failed: ${failed[*]}" >&2
	exit 1
fi
echo "verified"
