"""The completion of all programs for bash, from their parsers; `placement completion` prints it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tools.man_pages import parsers

TARGET: Final = Path(__file__).parent.parent / "compute_agent/cmd/placement/completion.bash"

_SCRIPT: Final = """\
# Written by tools/completions.py. The command placement reads names of hosts, once a minute.
_compute_agent_hosts() {{
    if [ $((SECONDS - ${{_compute_agent_hosts_read:--60}})) -ge 60 ]; then
        _compute_agent_host_names="$(timeout 5 placement provider list \\
            --required COMPUTE_NODE -f value -c name 2>/dev/null)"
        _compute_agent_hosts_read=$SECONDS
    fi
}}
_compute_agent_completion() {{
    local word command="${{COMP_WORDS[0]##*/}}" words= hosts=
    local last="${{COMP_WORDS[$((COMP_CWORD - 1))]}}" current="${{COMP_WORDS[$COMP_CWORD]}}"
    for word in "${{COMP_WORDS[@]:1:$((COMP_CWORD - 1))}}"; do
        case " {paths} " in
            *" $command/$word "*) command="$command/$word" ;;
        esac
    done
    case "$command" in
{cases}
    esac
    case " $hosts " in
        *" $last "*) words= ;;
        *" HOST "*) case "$current" in -*) hosts= ;; esac ;;
        *) hosts= ;;
    esac
    if [ -n "$hosts" ]; then
        _compute_agent_hosts
        words="$words $_compute_agent_host_names"
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _compute_agent_completion {programs}
"""
_HOSTS: Final = ("HOST", "HOST[=N]", "PROVIDER", "OLD")
"""Values that are the name of a host, or of a provider that a host may be."""


class _Words(NamedTuple):
    path: str
    words: list[str]
    hosts: list[str]
    """Options that are followed by the name of a host; HOST where an argument is one."""


def script() -> str:
    """Return the script for the programs as they are."""
    entries = [entry for parser in parsers() for entry in _entries(parser, _path(parser))]
    cases = "\n".join(
        f"        {path}) words='{' '.join(words)}'"
        + (f" hosts='{' '.join(hosts)}'" if hosts else "")
        + " ;;"
        for path, words, hosts in entries
    )
    programs = [entry.path for entry in entries if "/" not in entry.path]
    paths = " ".join(entry.path for entry in entries if "/" in entry.path)
    return _SCRIPT.format(paths=paths, cases=cases, programs=" ".join(programs))


def _path(parser: argparse.ArgumentParser) -> str:
    return parser.prog.replace(" ", "/")


def _entries(parser: argparse.ArgumentParser, path: str) -> Iterator[_Words]:
    """Yield each command as a path, and what may follow it."""
    words = [name for action in parser._actions for name in action.option_strings]
    hosts = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            words += action.choices
            for name, below in action.choices.items():
                if below._actions[1:]:
                    yield from _entries(below, f"{path}/{name}")
        elif not action.option_strings:
            words += [str(choice) for choice in action.choices or ()]
        if action.metavar in _HOSTS:
            hosts += action.option_strings or ["HOST"]
    yield _Words(path, words, list(dict.fromkeys(hosts)))


if __name__ == "__main__":
    TARGET.write_text(script())
