"""The command completion: a script with which bash or zsh completes commands and options."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from typing import Final

from compute_agent.cmd.placement.output import add_nothing
from compute_agent.cmd.placement.parser import Commands
from compute_agent.programs.exit_status import Exit

_SCRIPT: Final = """\
_placement() {{
    local word command= words
    for word in "${{COMP_WORDS[@]:1:$((COMP_CWORD - 1))}}"; do
        case "$word" in
            -*) ;;
            *) case " {groups} " in
                   *" ${{command:+$command/}}$word "*) command="${{command:+$command/}}$word" ;;
               esac ;;
        esac
    done
    case "$command" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _placement placement
"""
_ZSH: Final = "autoload -U +X bashcompinit && bashcompinit\n"


def add_commands(commands: Commands, parser: argparse.ArgumentParser) -> None:
    """Add the commands of this module.

    :param parser: of all commands.
    """
    group = commands.group("completion", "scripts for the completion of a shell")
    for shell, preamble in (("bash", ""), ("zsh", _ZSH)):
        print_script = partial(_print, preamble, parser)
        help_ = f"print it for {shell}: source <(placement completion {shell})"
        group.add(shell, print_script, help_, add_nothing)


def _print(preamble: str, parser: argparse.ArgumentParser, namespace: argparse.Namespace) -> int:
    del namespace
    print(preamble + script(parser), end="")
    return Exit.FINE


def script(parser: argparse.ArgumentParser) -> str:
    """Return a script for bash that completes the words of a parser."""
    words = dict(_words(parser))
    cases = "\n".join(
        f"        {path or repr('')}) words='{' '.join(entries)}' ;;"
        for path, entries in words.items()
    )
    return _SCRIPT.format(groups=" ".join(path for path in words if path), cases=cases)


def _words(parser: argparse.ArgumentParser, path: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield each command as a path, and what may follow it."""
    entries = [name for action in parser._actions for name in action.option_strings]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            entries += action.choices
            for name, below in action.choices.items():
                yield from _words(below, f"{path}/{name}".removeprefix("/"))
    yield path, entries
