#!/usr/bin/env bash
# Prints the hand-written lines of pkg/, without tests, by package and beside those of the previous release (a tag, or
# PREVIOUS).
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Before the first release, the first commit that builds releases stands for the previous release, as in build-previous.sh.
previous=${PREVIOUS:-$(git describe --tags --abbrev=0 --match 'v[0-9]*' HEAD^ 2>/dev/null || echo d606c8bc5f41)}

# count TREE prints the lines of each package of a commit.
count() {
	git grep --count -e '' "$1" -- 'pkg/**.go' |
		sed -e "s|^$1:||" | grep -v -e generated -e zz_ -e _test.go |
		awk -F: '{n = split($1, dirs, "/"); name = dirs[2]; if (n > 3 && (name == "agent" || name == "search")) name = name "/" dirs[3]; lines[name] += $2}
			END {for (name in lines) print name, lines[name]}'
}

if ! git rev-parse --verify --quiet "$previous^{commit}" >/dev/null; then
	echo "   the history does not contain $previous: git fetch --unshallow --tags" >&2
	previous=HEAD
fi
awk 'NR == FNR {before[$1] = $2; sum += $2; next}
	{now[$1] = $2; total += $2}
	END {
		for (name in before) if (!(name in now)) now[name] = 0
		for (name in now) printf "   %-28s %7d %+7d\n", "pkg/" name, now[name], now[name] - before[name] | "sort"
		close("sort")
		printf "   %-28s %7d %+7d\n", "all", total, total - sum
	}' <(count "$previous") <(count HEAD)
