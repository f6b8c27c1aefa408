#!/usr/bin/env bash
# Runs the named verifiers, or all of them, and prints the names of those that failed.
set -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

if [ $# -eq 0 ]; then
	set -- mod lint codegen lines
fi
failed=()
for name in "$@"; do
	if [ ! -x "hack/verify-$name.sh" ]; then
		echo "verify-all: unknown verifier $name" >&2
		exit 2
	fi
	begin=$SECONDS
	echo "== verify $name"
	if "hack/verify-$name.sh"; then
		echo "   $name: ok ($((SECONDS - begin)) s)"
	else
		echo "   $name: FAILED ($((SECONDS - begin)) s)"
		failed+=("$name")
	fi
done

if [ ${#failed[@]} -gt 0 ]; then
	echo "failed: ${failed[*]}" >&2
	exit 1
fi
echo "verified: $*"
