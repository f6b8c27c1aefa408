#!/usr/bin/env bash
# Violates the import rules of .golangci.yaml on purpose, and fails if the linter does not report it: in a module of
# the same name, every package imports a package that no list allows, and some import a package whose path only
# begins like one that is allowed.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

module=$(go list -m)
linter=$PWD/bin/tools/golangci-lint
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
printf 'module %s\n\ngo 1.26\n' "$module" >"$copy/go.mod"
cp .golangci.yaml "$copy"

# write PACKAGE FILE IMPORT...: a file of the package that imports the given packages, which it makes if need be.
write() {
	local package=$1 file=$2 import
	shift 2
	mkdir -p "$copy/$package"
	{
		printf 'package x\n\nimport (\n'
		printf '\t_ "%s"\n' "$@"
		printf ')\n'
	} >"$copy/$package/$file"
	for import in "$@"; do
		if [[ $import == "$module"/* ]]; then
			mkdir -p "$copy/${import#"$module"/}"
			echo 'package x' >"$copy/${import#"$module"/}/x.go"
		fi
	done
}

n=0
want=() # "file:import" of each import that has to be reported
# The server may import every layer below it, and generated code is excluded.
for package in $(go list -f '{{.ImportPath}}' ./pkg/... ./cmd/... ./examples/... | sed "s#^$module/##" | grep -vE '^pkg/(apiserver|generated)(/|$)'); do
	write "$package" unlisted.go "$module/unlisted"
	want+=("$package/unlisted.go:$module/unlisted")
done
while read -r package import; do
	name=forbidden$((++n)).go
	case $import in
	/test/*) name=${name%.go}_test.go ;;&
	/*) import=$module$import ;;
	esac
	write "$package" "$name" "$import"
	want+=("$package/$name:$import")
done <<-'ROWS'
	pkg/apis/work/v1 /pkg/apiserver
	pkg/apiserver /pkg/agent/work
	pkg/apiserver /pkg/clusteradm
	pkg/apiserver /pkg/clusterclient
	pkg/apiserver github.com/aws/aws-sdk-go-v2/service/iam
	pkg/agent/work/decide k8s.io/client-go/dynamic
	pkg/agent /pkg/irsa/awsapply
	pkg/bounded net/http
	pkg/controllers/clusterpermission /pkg/authz/escalation
	pkg/rbac k8s.io/client-go/rest
	pkg/registration /pkg/irsa/awsapply
	pkg/registry/rbac/clusterpermission /pkg/registry/work/manifestwork
	pkg/registry/search/search /pkg/search/embedded
	pkg/search /pkg/search/embedded
	pkg/search/graphql /pkg/search/postgres
	pkg/search/embedded /pkg/search/postgres
	pkg/search/query /pkg/apis/search/v1alpha1
	pkg/search/query database/sql
	pkg/reconcile /pkg/apis/work/v1
	pkg/render/clusterpermission /test/framework
	pkg/clusteradm /test/localhub
	pkg/clusteradm/cli /pkg/clusteradm/install
	pkg/search/postgres /test/postgrestest
ROWS

report=$(cd "$copy" && "$linter" run --allow-parallel-runners --enable-only depguard --output.text.print-issued-lines=false --output.text.colors=false ./... 2>&1 || true)
missed=0
for row in "${want[@]}"; do
	file=${row%%:*} import=${row#*:}
	if ! grep -qE "^$file:.*'$import' is not allowed" <<<"$report"; then
		echo "the linter allows $file to import $import" >&2
		missed=1
	fi
done
if ((missed)); then
	tail -n 20 <<<"$report" >&2
	exit 1
fi
echo "   ${#want[@]} forbidden imports reported"
