#!/usr/bin/env bash
# Runs the fuzz targets of the repository one after another, each for FUZZTIME (default 30s),
# and prints the targets that failed. FUZZ is a regular expression that selects targets.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
time=${FUZZTIME:-30s} only=${FUZZ:-.}

failed=() ran=0
while IFS=: read -r dir target; do
	[[ $target =~ $only ]] || continue
	echo "== $dir $target"
	ran=$((ran + 1))
	go test -buildvcs=false -run '^$' -fuzz "^$target\$" -fuzztime "$time" "./$dir" || failed+=("$dir $target")
done < <(git ls-files --cached --others --exclude-standard -- '*_test.go' |
	xargs grep -oE '^func Fuzz[A-Za-z0-9_]*\(' /dev/null |
	sed -E 's|^(.*)/[^/]*:func (Fuzz[^(]*)\(|\1:\2|' | sort -u)

echo "== $ran fuzz targets, $time each"
if ((${#failed[@]} > 0)); then
	printf 'failed: %s\n' "${failed[@]}" >&2
	exit 1
fi
