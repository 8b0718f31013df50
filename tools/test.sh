#!/bin/sh
# Installs what the tests need, where that is allowed, and runs them all through tox.
# Arguments are handed to tox (for instance: make test ARGS="-e unit").
set -eu
cd "$(dirname "$0")/.."
tools_venv=.tox/tools

say() { printf '== %s\n' "$*"; }

sh tools/check_python.sh

if [ ! -x "$tools_venv/bin/tox" ]; then
    say "installing tox, uv and bindep into $tools_venv"
    mkdir -p .tox
    python3 -m venv "$tools_venv"
    "$tools_venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        -c constraints.txt tox-uv bindep
fi

# uv does not read what pip is told of a mirror.
mirror=${PIP_INDEX_URL:-$("$tools_venv/bin/python" -m pip config get global.index-url 2>/dev/null || true)}
if [ -n "$mirror" ]; then
    export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$mirror}"
fi

# bindep exits 1 and prints one package a line when something is missing.
if missing=$("$tools_venv/bin/bindep" --brief test 2>/dev/null); then missing=""; fi
missing=$(printf '%s' "$missing" | tr '\n' ' ')
if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ]; then sudo=""
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo="sudo -n"
    else sudo=none
    fi
    if [ "$sudo" = none ] || ! command -v apt-get >/dev/null; then
        say "missing system packages: $missing"
        say "they cannot be installed from here (needs Debian or Ubuntu, and root or passwordless sudo);"
        say "the tests that need them are skipped and say which"
    else
        say "installing system packages: $missing"
        # Debian starts a database on its standard port after installing it; ours are private.
        $sudo env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 sh -c \
            "apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing" \
            >.tox/apt.log 2>&1 || {
            say "apt-get failed; its last lines (all of it: .tox/apt.log):"
            tail -n 5 .tox/apt.log
            say "the tests that need these packages are skipped and say which"
        }
    fi
fi

# The binding of libvirt is compiled here: there are no wheels of it.
if ! pkg-config --exists libvirt 2>/dev/null; then
    say "libvirt's headers are missing (Debian: libvirt-dev pkg-config); its tests are skipped"
    TEST_EXTRAS="test"
    export TEST_EXTRAS
fi

# side by side: pip and mypy use one core each
exec "$tools_venv/bin/tox" run-parallel --parallel-live "$@"
