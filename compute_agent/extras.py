"""Parts of the software that not every host has, by the extras of the Python package."""

from __future__ import annotations

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
