#!/usr/bin/env bash
# Prints the arguments of go test for a tier, from the table test/tiers/long:
#   tests.sh short     all tests that the table does not name
#   tests.sh packages  the packages of which all tests are long
#   tests.sh some      the long tests of the other packages
# or whether the long tests are due:
#   tests.sh due       prints the changed path that they cover, and fails if there is none
# The changes are those since CI_BASE, or of the last day: older commits have had a nightly run of all tests.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Rows as package;tests;paths, without spaces around the semicolons.
rows() { sed -E '/^(#|$)/d; s/ *; */;/g' test/tiers/long; }
# names MODE prints the names of the tests, and packages the packages, of the rows with all tests or with some.
field() { rows | awk -F';' -v all="$1" -v field="$2" '($2 == "*") == all && $1 ~ /^test\// {print $field}'; }
pattern() { echo "^($(field 0 2 | paste -sd'|'))\$"; }

case "${1:-}" in
short)
	printf -- "-skip=%s " "$(pattern)"
	go list ./... | grep -vxF -e "$(field 1 1 | sed 's|^|open-cluster-management.io/hub-apiserver/|')" -e open-cluster-management.io/hub-apiserver/test/bench
	;;
packages)
	field 1 1 | sed 's|^|./|'
	;;
some)
	printf -- "-run=%s " "$(pattern)"
	field 0 1 | sed 's|^|./|'
	;;
due)
	if git cat-file -e "${CI_BASE:-}" 2>/dev/null; then
		changed=$(git diff --name-only "$CI_BASE" HEAD)
	else
		changed=$(git log --format= --name-only --since=$(($(git log -1 --format=%ct) - 24 * 3600)) HEAD)
	fi
	rows | awk -F';' '{print $1; split($3, paths, " "); for (i in paths) print paths[i]}' | sort -u |
		awk 'NR == FNR {path[$0]; next} {for (p in path) if (index($0 "/", p "/") == 1) {print; exit found = 1}} END {exit !found}' - <(echo "$changed")
	;;
*)
	echo "usage: $0 short|packages|some|due" >&2
	exit 2
	;;
esac
