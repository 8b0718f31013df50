#!/bin/sh
# Makes the virtual environment of the programs, and puts each file of it into the package that needs it.
set -eu
lib=usr/lib/compute-agent
stage=$PWD/debian/stage
venv=$stage/$lib

pip_install() {
    "$venv/bin/python3" -m pip install --quiet --disable-pip-version-check --no-compile \
        --constraint constraints.txt "$@"
}

# What the environment has now and had not before goes into a package.
files_into() {
    # libraries bring their own tests, a fifth of their size
    find "$venv/lib" -type d -name tests -prune -exec rm -rf {} +
    # of unchecked-hash: dpkg changes the times of files, and nobody but dpkg changes the files
    "$venv/bin/python3" -m compileall -q -s "$stage" -p / --invalidation-mode unchecked-hash "$venv/lib"
    find "$venv/bin" -type f -exec sed -i "1s|^#!.*/bin/python[0-9.]*|#!/$lib/bin/python3|" {} +
    (cd "$stage" && find . ! -type d | LC_ALL=C sort) >debian/files.now
    LC_ALL=C comm -13 debian/files.before debian/files.now |
        tar -C "$stage" -cf - -T - | tar -C "debian/$1" -xf -
    mv debian/files.now debian/files.before
}

rm -rf "$stage" debian/wheel
mkdir -p debian/compute-agent-common debian/placement-server
: >debian/files.before
/usr/bin/python3 -m venv "$venv"
"$venv/bin/python3" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir debian/wheel .
wheel=$(echo debian/wheel/compute_agent-*.whl)

# nobody activates this environment
rm -f "$venv"/bin/[Aa]ctivate*
sed -i '/^command = /d' "$venv/pyvenv.cfg"
pip_install "${wheel}[bus,nvidia]"
# samples, documentation and manual, which the packages have in /usr/share
rm -rf "$venv/share"
files_into compute-agent-common
pip_install "${wheel}[server,postgresql,mysql,cloud]"
files_into placement-server

for package in compute-agent-common placement-server; do
    (cd "debian/$package/$lib" && rm -rf bin/pip* lib/python3*/site-packages/pip \
        lib/python3*/site-packages/pip-*.dist-info)
    find "debian/$package/$lib" -type d -empty -delete
done
# commands of libraries
find debian/*/$lib/bin -type f ! -name 'compute-*' ! -name 'placement*' ! -name 'python*' -delete
