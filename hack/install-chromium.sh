#!/usr/bin/env bash
# Installs Chromium for the tests of the console in a browser, if it is missing.
#
#   root, or sudo without a password   installs Debian's chromium
#   otherwise                          says what to do, and fails
#
# HUB_CHROMIUM is the path of another Chromium or Chrome; none skips the tests that need it.
set -euo pipefail

for program in ${HUB_CHROMIUM:-chromium chromium-browser google-chrome-stable google-chrome}; do
  if [[ $program == none ]] || command -v "$program" >/dev/null; then
    exit 0
  fi
done

fail() {
  echo "install-chromium: $1" >&2
  echo "Install Chromium or Chrome, or set HUB_CHROMIUM to its path." >&2
  exit 1
}
if [[ -n ${HUB_CHROMIUM:-} ]]; then
  fail "HUB_CHROMIUM=$HUB_CHROMIUM is no program"
fi
if ! command -v apt-get >/dev/null; then
  fail "this is not a Debian system"
fi
as_root=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
    fail "this user is not root and has no sudo without a password"
  fi
  as_root=(sudo -n)
fi
echo "==> installing chromium with apt-get"
"${as_root[@]}" apt-get update || fail "apt-get update failed"
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends chromium || fail "apt-get cannot install chromium"
command -v chromium >/dev/null || fail "chromium is still missing"
echo "    done"
