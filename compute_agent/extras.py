"""Parts of the software that not every host has, and packages that are not used where they are."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from importlib.util import find_spec

from compute_agent import errors
from compute_agent.programs.extra_installation import install_command


def require(extra: str, purpose: str, *modules: str, package: str = "") -> None:
    """Check that an extra is installed, before anything of it is imported.

    :param package: what has it for the Debian packages of this project.
    :param purpose: what cannot be done without it; the subject of the error's sentence.
    :param modules: top-level modules that the extra brings.
    :raises InvalidConfiguration: one is missing; the text names it and the command that helps.
    """
    missing_modules = [module for module in modules if find_spec(module) is None]
    if missing_modules:
        raise errors.InvalidConfiguration(
            f"{purpose} needs {', '.join(missing_modules)}, which this installation of "
            f"compute-agent does not have. Install it with: {install_command(extra)}"
            f"{package and f' (beside the Debian packages: apt install {package})'}"
        )


@contextlib.contextmanager
def without(*modules: str) -> Iterator[None]:
    """Import as if these modules were not installed, which libraries load for what nobody uses."""
    hidden_modules = [module for module in modules if module not in sys.modules]
    # for an entry of None an import fails
    sys.modules.update(dict.fromkeys(hidden_modules))  # type: ignore[arg-type]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for module in hidden_modules:
            del sys.modules[module]
