#!/bin/sh
# Updates constraints.txt: the newest versions that go together, as pip resolves them today.
# Run it with the oldest Python that is supported (Debian 12 has 3.11.2: pymdown-extensions 13 asks
# for 3.11.5), then `make test`, and commit the file only when the tests pass.
set -eu
cd "$(dirname "$0")/.."
venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT
python3 -m venv "$venv"
"$venv/bin/python" -m pip install --quiet \
    '.[bench,lint,test]' tox-uv bindep mkdocs-material
{
    echo "# Versions everything is tested with: pip install -c constraints.txt ..."
    echo "# Written by tools/constraints.sh."
    "$venv/bin/python" -m pip freeze --exclude compute-agent
    # Compiled against libvirt-dev, so not installed above.
    echo "libvirt-python==12.8.0"
} >constraints.txt
