#!/usr/bin/env bash
# Fails if a Go file is not formatted.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bad=$(git ls-files -co --exclude-standard '*.go' | xargs gofmt -s -l)
if [ -n "$bad" ]; then
	echo "not formatted; run gofmt -s -w on:" >&2
	echo "$bad" >&2
	exit 1
fi
