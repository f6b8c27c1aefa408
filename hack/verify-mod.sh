#!/usr/bin/env bash
# Fails if go mod tidy would change a go.mod or go.sum, if the root module mixes versions of the
# Kubernetes libraries, or if two of the modules that make test compiles use different versions of a library.
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
different=$({
	modules . ./cmd/...
	modules hack/devhub .
	modules hack/release . helm.sh/helm/v4/cmd/helm
	modules hack/monitoring -test .
} | sort -u | awk '$1 == path {print path ": " version " and " $2} {path = $1; version = $2}')
if [ -n "$different" ]; then
	echo "these libraries have different versions in the go.mod files, so they and their importers compile twice:" >&2
	echo "$different" >&2
	exit 1
fi
