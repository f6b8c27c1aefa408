#!/usr/bin/env bash
# Prints the arguments of go test for a tier, from the table test/tiers/long:
#   tests.sh short     all tests that the table does not name
#   tests.sh packages  the packages of which all tests are long
#   tests.sh some      the long tests of the other packages
# LONG limits the last two to the packages that it names, and
#   tests.sh due       prints the packages of the long tests that cover a change, and fails if there are none
# The changes are those since CI_BASE, or of the last day: older commits have had a nightly run of all tests.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The tests of all rows depend on these paths.
everywhere='.ci go.mod hack/tests.sh test/await test/framework test/localhub test/tiers'

# Rows as package;tests;paths, without spaces around the semicolons.
rows() { sed -E '/^(#|$)/d; s/ *; */;/g' test/tiers/long; }
# field ALL FIELD prints a field of the rows with all tests (1) or with some (0), except those with a target of their own.
field() { rows | awk -F';' -v all="$1" -v field="$2" '($2 == "*") == all && $1 !~ /^(hack\/|test\/node$)/ {print $field}'; }
limited() { sort -u | { grep -xF -f <(tr ' ' '\n' <<<"${LONG:-$(rows | cut -d';' -f1)}") || true; } | sed 's|^|./|'; }
pattern() { echo "^($(field 0 2 | paste -sd'|'))\$"; }

case "${1:-}" in
short)
	printf -- "-skip=%s " "$(pattern)"
	go list ./... | grep -vxF -e "$(field 1 1 | sed 's|^|open-cluster-management.io/hub-apiserver/|')" -e open-cluster-management.io/hub-apiserver/test/bench -e open-cluster-management.io/hub-apiserver/test/node
	;;
packages)
	field 1 1 | limited
	;;
some)
	packages=$(field 0 1 | limited)
	[[ -z $packages ]] || printf -- "-run=%s %s\n" "$(pattern)" "$packages"
	;;
due)
	if git cat-file -e "${CI_BASE:-}" 2>/dev/null; then
		changed=$(git diff --name-only "$CI_BASE" HEAD)
	else
		[[ -z ${CI_BASE:-} ]] || echo "CI_BASE=$CI_BASE: no such commit in the repository; this lists the packages for the commits of the last day" >&2
		changed=$(git log --format= --name-only --since=$(($(git log -1 --format=%ct) - 24 * 3600)) HEAD)
	fi
	rows | awk -F';' -v everywhere="$everywhere" '
		NR == FNR {changed[$0]; next}
		{n = split($1 " " $3 " " everywhere, paths, " "); for (i = 1; i <= n; i++) for (c in changed) if (index(c "/", paths[i] "/") == 1) {print $1; next}}
	' <(echo "$changed") - | sort -u | grep .
	;;
*)
	echo "usage: $0 short|packages|some|due" >&2
	exit 2
	;;
esac
