"""The command completion: a script with which bash or zsh completes the words of all programs."""

from __future__ import annotations

import argparse
from functools import partial
from importlib import resources
from typing import Final

from compute_agent.cmd.placement.parser import Commands

_ZSH: Final = "autoload -U +X bashcompinit && bashcompinit\n"


def add_commands(commands: Commands) -> None:
    """Add the commands of this module."""
    group = commands.group("completion", "scripts for the completion of all programs by a shell")
    for shell, preamble in (("bash", ""), ("zsh", _ZSH)):
        help_ = f"print it for {shell}: source <(placement completion {shell})"
        group.add_local(shell, partial(_print, preamble), help_)


def _print(preamble: str, namespace: argparse.Namespace) -> None:
    del namespace
    script = resources.files("compute_agent.cmd.placement").joinpath("completion.bash").read_text()
    print(preamble + script, end="")
