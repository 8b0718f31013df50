#!/bin/sh
# Writes what a release is installed with, from setup.cfg and constraints.txt:
#
#   requirements-release.txt  every package of all programs, with the hashes of its files:
#                             pip install --require-hashes -r requirements-release.txt
#   constraints-oldest.txt    the oldest versions that setup.cfg allows: tox run -e oldest
#   constraints-RELEASE.txt   the newest versions on the day of a release of OpenStack, which its
#                             upper-constraints follow: tox run -e RELEASE
#
# Run it after setup.cfg or constraints.txt have changed, and commit both.
set -eu
cd "$(dirname "$0")/.."
venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT
python3 -m venv "$venv"
"$venv/bin/python" -m pip install --quiet uv

extras=""
for extra in bus cloud libvirt memcached mysql nvidia postgresql server tracing; do
    extras="$extras --extra $extra"
done

# resolve OUTPUT ARGUMENT...: the packages of all programs, one a line
resolve() {
    output=$1
    shift
    # shellcheck disable=SC2086 # the extras are words
    "$venv/bin/uv" pip compile --quiet --universal --python-version 3.11 \
        --no-annotate --no-header $extras "$@" setup.cfg >"$venv/resolved"
    {
        echo "# Written by tools/release_constraints.sh."
        cat "$venv/resolved"
    } >"$output"
}

resolve requirements-release.txt --generate-hashes --constraint constraints.txt
resolve constraints-oldest.txt --resolution lowest-direct
# granian is not of OpenStack, and its versions of those days are older than setup.cfg allows
grep "^granian==" constraints.txt >"$venv/granian"
for release in flamingo:2025-10-01 gazpacho:2026-04-01; do
    resolve "constraints-${release%:*}.txt" --exclude-newer "${release#*:}" \
        --exclude-newer-package granian=false --constraint "$venv/granian"
done
