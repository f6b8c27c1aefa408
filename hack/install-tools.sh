#!/usr/bin/env bash
# Builds the linters of hack/tools/go.mod into bin/tools, once for each version.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

want=$(sha256sum hack/tools/go.mod hack/tools/go.sum)
if [ "$(cat bin/tools/.linters 2>/dev/null)" != "$want" ]; then
	echo "== building linters"
	mkdir -p bin/tools
	tools=$PWD/bin/tools
	(cd hack/tools && go build -buildvcs=false -o "$tools/" \
		honnef.co/go/tools/cmd/staticcheck github.com/OpenPeeDeeP/depguard/v2/cmd/depguard)
	echo "$want" >bin/tools/.linters
fi
