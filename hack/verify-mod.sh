#!/usr/bin/env bash
# Fails if go mod tidy would change a go.mod or go.sum, if the root module mixes versions of the
# Kubernetes libraries, or if the local hub uses other versions of libraries than the root module.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
for module in . hack/tools hack/release hack/monitoring; do
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
modules() { # DIRECTORY: the modules that its programs use, with their versions
	(cd "$1" && go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{with .Replace}}{{.Version}}{{else}}{{.Version}}{{end}}{{end}}{{end}}' "${@:2}" | sort -u)
}
root=$(modules . ./cmd/...)
hub=$(modules hack/devhub .)
different=$(join <(echo "$root") <(echo "$hub") | awk '$2 != $3 {print $1 ": " $2 " and " $3}')
if [ -n "$different" ]; then
	echo "these libraries have different versions in go.mod and hack/devhub/go.mod, so they and their importers compile twice:" >&2
	echo "$different" >&2
	exit 1
fi
