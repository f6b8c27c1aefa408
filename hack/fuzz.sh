#!/usr/bin/env bash
# Runs every native fuzz target of the repository, one after another, for FUZZTIME each
# (30s if not given), and names those that found something. FUZZ is a regular expression
# that selects targets.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
time=${FUZZTIME:-30s} only=${FUZZ:-.}

found=() ran=0
while IFS=: read -r dir target; do
	[[ $target =~ $only ]] || continue
	echo "== $dir $target"
	ran=$((ran + 1))
	go test -buildvcs=false -run '^$' -fuzz "^$target\$" -fuzztime "$time" "./$dir" || found+=("$dir $target")
done < <(git ls-files --cached --others --exclude-standard -- '*_test.go' |
	xargs grep -oE '^func Fuzz[A-Za-z0-9_]*\(' /dev/null |
	sed -E 's|^(.*)/[^/]*:func (Fuzz[^(]*)\(|\1:\2|' | sort -u)

echo "== $ran fuzz targets, $time each"
if ((${#found[@]} > 0)); then
	printf 'found something: %s\n' "${found[@]}" >&2
	exit 1
fi
