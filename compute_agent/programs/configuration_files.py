"""Options for configuration files, which a command takes before and after its name."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Final

from compute_agent.programs.arguments import Argument, arguments

_OPTIONS: Final = ("--config-file", "--config-dir")


def options(default: str, what: str = "configuration file") -> Argument:
    """Return what adds `--config-file` and `--config-dir`.

    :param default: the file that is read where none is named.
    """
    return arguments(
        f"""
        --config-file FILE *  {what}; may be given several times; default: {default}
        --config-dir DIR *    directory of *.conf files
        """
    )


def split(
    program: str, arguments: Sequence[str], bad_arguments: int = 2
) -> tuple[list[str], list[str]]:
    """Return the options of `arguments` for configuration files, and all other arguments.

    :param program: named by the error of an option without its value, which ends the program.
    :param bad_arguments: the exit status then.
    """
    parser = argparse.ArgumentParser(
        prog=program,
        add_help=False,
        allow_abbrev=False,
        exit_on_error=False,
    )
    for option in _OPTIONS:
        parser.add_argument(
            option, dest="given", action="append", default=[], type=_with_its_value(option)
        )
    try:
        namespace, others = parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        sys.stderr.write(f"{program}: {error}\n")
        raise SystemExit(bad_arguments) from None
    return namespace.given, others


def _with_its_value(option: str) -> Callable[[str], str]:
    return lambda value: f"{option}={value}"
