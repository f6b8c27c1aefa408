#!/usr/bin/env bash
# Fails if go mod tidy would change a go.mod or go.sum, or if the root module
# mixes versions of the Kubernetes libraries.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
for module in . hack/tools; do
	(cd "$module" && go mod tidy -diff) || {
		echo "go mod tidy would change $module" >&2
		exit 1
	}
done
mixed=$(go list -m -f '{{.Path}} {{.Version}}' all | grep -E '^k8s\.io/(api|apiextensions-apiserver|apimachinery|apiserver|client-go|code-generator|component-base|component-helpers|kms|kube-aggregator|streaming) ' | grep -v ' v0\.37\.2$' || true)
if [ -n "$mixed" ]; then
	echo "these Kubernetes libraries are not at version v0.37.2:" >&2
	echo "$mixed" >&2
	exit 1
fi
