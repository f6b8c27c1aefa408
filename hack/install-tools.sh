#!/usr/bin/env bash
# Builds the linter of hack/tools/go.mod into bin/tools, once for each version.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

want=$(sha256sum hack/tools/go.mod hack/tools/go.sum)
if [ "$(cat bin/tools/.linters 2>/dev/null)" != "$want" ]; then
	echo "== building golangci-lint (takes two minutes the first time)"
	mkdir -p bin/tools
	tools=$PWD/bin/tools
	(cd hack/tools && go build -buildvcs=false -o "$tools/" github.com/golangci/golangci-lint/v2/cmd/golangci-lint)
	echo "$want" >bin/tools/.linters
fi
