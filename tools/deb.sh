#!/bin/sh
# Builds the Debian packages from the files that git knows, into dist/ or the directory in $1.
set -eu
cd "$(dirname "$0")/.."
for program in dpkg-buildpackage dh; do
    if ! command -v "$program" >/dev/null; then
        echo "== $program is missing: apt-get install dpkg-dev debhelper python3-venv" >&2
        exit 1
    fi
done
target=${1:-dist}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/compute-agent" "$target"
git ls-files -z -- . ':!tests' ':!benchmarks' | xargs -0 cp --parents --no-dereference -t "$work/compute-agent"
(cd "$work/compute-agent" && dpkg-buildpackage --build=binary --no-sign)
rm -f "$target"/*.deb
mv "$work"/*.deb "$target"
ls -l "$target"/*.deb
