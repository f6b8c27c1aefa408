#!/usr/bin/env bash
# Installs initdb and postgres for the tests of the search engine on PostgreSQL, if they are
# missing. It starts neither a service nor a database cluster.
#
#   root, or sudo without a password   installs Debian's postgresql
#   otherwise                          unpacks it into bin/postgres
#
# HUB_POSTGRES_BIN is the directory of another PostgreSQL. The tests of the trigram index
# need its extension pg_trgm.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

found() { # reports whether a directory contains both programs
  local directory
  for directory in "${HUB_POSTGRES_BIN:-}" "$(pg_config --bindir 2>/dev/null || true)" \
    "$(dirname "$(command -v postgres || true)")" /usr/lib/postgresql/*/bin bin/postgres/usr/lib/postgresql/*/bin; do
    if [[ -n $directory && -x $directory/initdb && -x $directory/postgres ]]; then
      return 0
    fi
  done
  return 1
}
found && exit 0

if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
  echo "install-postgres: this is not a Debian system. Install PostgreSQL 15 or later with its contrib modules," >&2
  echo "and set HUB_POSTGRES_BIN to the directory of initdb and postgres." >&2
  exit 1
fi

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  as_root=(sudo -n)
fi
if [[ $(id -u) -eq 0 ]] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }; then
  echo "==> installing postgresql with apt-get"
  # Without this setting the package creates a database cluster and starts it.
  "${as_root[@]}" mkdir -p /etc/postgresql-common
  if [[ ! -e /etc/postgresql-common/createcluster.conf ]]; then
    echo "create_main_cluster = false" | "${as_root[@]}" tee /etc/postgresql-common/createcluster.conf >/dev/null
  fi
  "${as_root[@]}" apt-get update
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends postgresql
else
  package=$(apt-cache depends postgresql 2>/dev/null | sed -nE 's/^ *Depends: (postgresql-[0-9]+)$/\1/p' | head -n 1)
  if [[ -z $package ]]; then
    echo "install-postgres: apt knows no package postgresql; run apt-get update as root once" >&2
    exit 1
  fi
  echo "==> unpacking $package into bin/postgres: this user is not root and has no sudo without a password"
  mkdir -p bin/postgres
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  # Unpack the libraries that PostgreSQL needs, too, unless they are installed.
  mapfile -t packages < <(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
    --no-replaces --no-enhances "$package" | sed -nE 's/^([a-z0-9][a-z0-9+.:-]*)$/\1/p' |
    grep -E '^(postgresql-[0-9]+|postgresql-client-[0-9]+|libpq5|libllvm[0-9.]+|libxslt1\.1|libxml2|libicu[0-9]+|libldap-.*|libz3-[0-9]+)$' | sort -u)
  for name in "${packages[@]}"; do
    if [[ $name != "$package" ]] && dpkg -s "$name" >/dev/null 2>&1; then
      continue
    fi
    echo "    $name"
    (cd "$work" && apt-get download -q "$name")
  done
  for archive in "$work"/*.deb; do
    dpkg -x "$archive" bin/postgres
  done
  # The loader does not search bin/postgres for libraries.
  library=bin/postgres/usr/lib/$(uname -m)-linux-gnu
  for directory in bin/postgres/usr/lib/postgresql/*/bin; do
    if [[ -d $library ]] && ldd "$directory/postgres" | grep -q 'not found'; then
      for program in initdb postgres; do
        mv "$directory/$program" "$directory/$program.real"
        printf '#!/bin/sh\nLD_LIBRARY_PATH=%q exec %q "$@"\n' "$PWD/$library" "$PWD/$directory/$program.real" >"$directory/$program"
        chmod +x "$directory/$program"
      done
    fi
  done
fi

if ! found; then
  echo "install-postgres: initdb and postgres are still missing" >&2
  exit 1
fi
echo "    done"
