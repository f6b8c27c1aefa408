#!/usr/bin/env bash
# Generates, from the types in pkg/apis: lists and internal types, deepcopy, defaults, conversion, registration, OpenAPI,
# apply configurations, typed clientset, listers and informers, and docs/api-reference.md.
# All tools except hack/types-gen come from the k8s.io/code-generator version in go.mod and are
# installed into bin/tools. The API reference is written by crd-ref-docs.
set -o errexit -o nounset -o pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
this_pkg=open-cluster-management.io/hub-apiserver

export GOBIN=${GOBIN:-$root/bin/tools}
mkdir -p "$GOBIN"

codegen=$(go list -m -f '{{.Dir}}' k8s.io/code-generator)
if [ -z "$codegen" ]; then
	go mod download k8s.io/code-generator
	codegen=$(go list -m -f '{{.Dir}}' k8s.io/code-generator)
fi
# shellcheck source=/dev/null
source "$codegen/kube_codegen.sh"
# Its types are in our OpenAPI, but nothing is written into the module cache.
KUBE_CODEGEN_READONLY_PKGS+=(k8s.io/api/rbac/v1 k8s.io/apimachinery/pkg/util/intstr)

echo "== types"
find pkg/apis -name zz_generated.types.go -delete
find pkg/apis -name doc.go -exec dirname {} \; | xargs go run ./hack/types-gen hack/boilerplate.go.txt "$this_pkg"

echo "== helpers"
kube::codegen::gen_helpers --boilerplate hack/boilerplate.go.txt pkg/apis

echo "== registration"
kube::codegen::gen_register --boilerplate hack/boilerplate.go.txt pkg/apis

echo "== openapi"
kube::codegen::gen_openapi \
	--output-dir pkg/generated/openapi \
	--output-pkg "$this_pkg/pkg/generated/openapi" \
	--output-model-name-file zz_generated.model_name.go \
	--report-filename hack/api-violations.list \
	--update-report \
	--extra-pkgs k8s.io/api/rbac/v1 \
	--extra-pkgs k8s.io/apimachinery/pkg/util/intstr \
	--boilerplate hack/boilerplate.go.txt \
	pkg/apis

echo "== clients"
schema=$(mktemp)
trap 'rm -f "$schema"' EXIT
go run ./hack/models-schema >"$schema"
kube::codegen::gen_client \
	--with-watch \
	--with-applyconfig \
	--applyconfig-openapi-schema "$schema" \
	--output-dir pkg/generated \
	--output-pkg "$this_pkg/pkg/generated" \
	--boilerplate hack/boilerplate.go.txt \
	pkg/apis
gofmt -s -w pkg/generated

echo "== API reference"
go install github.com/elastic/crd-ref-docs@v0.3.0
# It knows kinds by a marker of kubebuilder, which the types have while it runs.
marker='// +kubebuilder:object:root=true'
mapfile -t files < <(grep -lr '^// +k8s:deepcopy-gen:interfaces=.*runtime.Object' pkg/apis --include='*.go')
trap 'rm -f "$schema"; sed -i "\|^$marker|d" "${files[@]}"' EXIT
sed -i "s|^// +k8s:deepcopy-gen:interfaces=.*runtime.Object|&\n$marker|" "${files[@]}"
"$GOBIN/crd-ref-docs" --log-level ERROR --source-path pkg/apis --config hack/docs/reference.yaml --renderer markdown \
	--max-depth 20 --output-path docs/api-reference.md
