#!/bin/sh
# Ends with a clear sentence when this machine's python3 cannot run the project.
if ! command -v python3 >/dev/null; then
    echo "python3 was not found. Install Python 3.11 or newer (Debian, Ubuntu: apt-get install python3 python3-venv)." >&2
    exit 1
fi
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "python3 is $(python3 -c 'import platform; print(platform.python_version())'), but Python 3.11 or newer is needed. Install it, or put it first in PATH as python3." >&2
    exit 1
fi
if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    echo "python3 cannot make virtual environments. Install the module venv (Debian, Ubuntu: apt-get install python3-venv)." >&2
    exit 1
fi
