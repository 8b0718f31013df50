"""The command that installs an extra of the Python package, which no package index has."""

from __future__ import annotations


def install_command(extra: str) -> str:
    """Return what to type, in a sentence that goes on with it."""
    return f"pip install '.[{extra}]' in a checkout, or pip install 'FILE.whl[{extra}]' of a wheel"
