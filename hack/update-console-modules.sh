#!/usr/bin/env bash
# Fetches the released modules that the console uses, checks them against the recorded integrity, and writes
# pkg/console/static/vendor-*.js, their licences, and the table pkg/console/vendor.md. The module for tests goes to
# test/browser/testdata. It needs npm and a network; nothing else of this repository does.
#
# To update a module, change its version and integrity (npm view NAME@VERSION dist.integrity) and run the script.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

static=pkg/console/static
licences=pkg/console/licences
tests=test/browser/testdata
table=pkg/console/vendor.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fetch() { # NAME VERSION INTEGRITY: unpacks a released module into $work/NAME
  local archive actual
  archive=$(cd "$work" && npm pack --silent --ignore-scripts "$1@$2")
  actual=sha512-$(openssl dgst -sha512 -binary "$work/$archive" | base64 -w0)
  if [[ $actual != "$3" ]]; then
    echo "update-console-modules: integrity of $1@$2 is $actual, want $3" >&2
    exit 1
  fi
  mkdir -p "$work/$1"
  tar -xzf "$work/$archive" -C "$work/$1" --strip-components=1
}

row() { # FILE MODULE VERSION LICENCE LICENCE-FILE: adds a row to the table
  echo "| \`$1\` | $2 | $3 | $4 | \`$5\` | \`$(sha256sum "$1" | cut -d' ' -f1)\` |" >>"$table"
}

module() { # FILE MODULE-FILE COMMENT: writes an ES module with a comment, without the reference to its source map
  { printf '/*! %s */\n' "$3" && grep -v '^//# sourceMappingURL=' "$work/$2"; } >"$static/$1"
}

rm -rf "$static"/vendor-*.js "$licences"
mkdir -p "$static" "$licences" "$tests"
cat >"$table" <<'HEAD'
# Modules of others

`hack/update-console-modules.sh` writes this table and the files in it from released modules. A test of `pkg/console` checks
them. Do not edit them.

| file | module | version | licence | text of the licence | SHA-256 |
|---|---|---|---|---|---|
HEAD

# htm contains Preact and its hooks in one ES module. The licence of Preact is that of its last release of the same major version.
fetch htm 3.1.1 sha512-983Vyg8NwUE7JkZ6NmOqpCZ+sh1bKv2iYTlUkzlWmA5JD2acKoxd4KVxbMmxX/85mtfdnDmTFoNKcg5DGAvxNQ==
fetch preact 10.29.8 sha512-ej2aVZ+vZ8WO7tvlQWRM9N63A0KzF9q4mWJfDUHgYaIofWY9hu74QdnQrjoPMmZi2/nZ5gN0bJCQF49xQqx09Q==
module vendor-htm-preact.js htm/preact/standalone.module.js "htm 3.1.1 (Apache-2.0, Copyright 2018 Google Inc.) with Preact 10 and its hooks (MIT, Copyright (c) 2015-present Jason Miller)"
cat "$work/htm/LICENSE" <(printf '\n\nPreact, which htm contains:\n\n') "$work/preact/LICENSE" >"$licences/htm.txt"
row "$static/vendor-htm-preact.js" "htm, preact/standalone" 3.1.1 "Apache-2.0 AND MIT" "$licences/htm.txt"

fetch @dagrejs/dagre 3.1.3 sha512-X4aUTwOReZvthaZWOVHqlJ52/ZdhZFEM4+Lh/uR4XooUSLE6p71bcy7MPGzYnNUcNh+nj+i/qJQpCMIdQnSmrg==
module vendor-dagre.js @dagrejs/dagre/dist/dagre.esm.js "@dagrejs/dagre 3.1.3 (MIT, Copyright (c) 2012-2014 Chris Pettitt)"
cp "$work/@dagrejs/dagre/LICENSE" "$licences/dagre.txt"
row "$static/vendor-dagre.js" @dagrejs/dagre 3.1.3 MIT "$licences/dagre.txt"

# For tests only.
fetch axe-core 4.14.1 sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==
cp "$work/axe-core/axe.min.js" "$tests/axe.min.js"
cp "$work/axe-core/LICENSE" "$tests/axe.LICENSE.txt"
row "$tests/axe.min.js" "axe-core, for tests only" 4.14.1 MPL-2.0 "$tests/axe.LICENSE.txt"

cat "$table"
