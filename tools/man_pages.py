"""The manual pages man/*.1, from the parsers of the programs: the source of `--help` too.

A page per program and per family of commands, such as `compute-manage host`. The package
argparse-manpage repeats common options with every command, and roff warns of the usage it prints.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from compute_agent.cmd.agent import main as agent
from compute_agent.cmd.dev import main as dev
from compute_agent.cmd.manage import main as manage
from compute_agent.cmd.placement import main as placement
from compute_agent.cmd.scheduler import main as scheduler
from placement_server import __version__
from placement_server.cmd import manage as placement_manage
from placement_server.cmd import serve as placement_server
from placement_server.cmd import status as placement_status

TARGET = Path(__file__).parent.parent / "man"
DOCUMENTATION = "/usr/share/doc/compute-agent"
REFERENCE = {
    "compute-agent": "reference/compute-agent.md",
    "compute-scheduler": "reference/scheduler.md",
    "compute-manage": "reference/compute-manage.md",
    "placement": "reference/placement-command.md",
    "placement-server": "reference/placement-server.md",
    "placement-manage": "reference/database.md",
    "placement-status": "do/upgrades.md",
}


def parsers() -> list[argparse.ArgumentParser]:
    """Return the parser of each program, and that of `compute-agent dev`, which has its own."""
    return [
        agent._parser(),
        dev._parser(),
        scheduler._parser(),
        manage._parser(),
        placement.build_parser(),
        placement_server._parser(),
        _parser_of(placement_manage, "placement-manage", ["db", "version"]),
        _parser_of(placement_status, "placement-status", ["upgrade", "check"]),
    ]


def _parser_of(
    module: ModuleType, program: str, arguments: Sequence[str]
) -> argparse.ArgumentParser:
    """Return the parser that oslo.config makes of the options, which it has no public name for."""
    conf = module.new_conf()
    conf(
        arguments,
        prog=program,
        version=__version__,
        description=module.DESCRIPTION,
        default_config_files=[],
        default_config_dirs=[],
    )
    parser: argparse.ArgumentParser = conf._oparser
    return parser


def pages() -> dict[str, str]:
    """Return the current content of each page by the name of its file."""
    found_pages = {"compute-agent-dev": _command_page(parsers()[1], "compute-agent-dev")}
    for parser in parsers():
        found_pages |= dict(_pages(parser))
    names = sorted(found_pages)
    return {f"{name}.1": text + _see_also(name, names) for name, text in found_pages.items()}


def commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands of a parser by name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the arguments and options that a command shows in its help, without --help."""
    left_out = (argparse._HelpAction, argparse._SubParsersAction)
    return [
        action
        for action in parser._actions
        if not isinstance(action, left_out) and action.help != argparse.SUPPRESS
    ]


def _pages(parser: argparse.ArgumentParser, about: str = "") -> Iterator[tuple[str, str]]:
    """Yield the name and the text of the page of a program or family, and of those in it."""
    name = parser.prog.replace(" ", "-")
    children = commands(parser)
    if not children:
        return
    families = {word: child for word, child in children.items() if commands(child)}
    leaves = {word: child for word, child in children.items() if word not in families}
    shared_actions = _shared_actions(list(leaves.values()))
    lines = [*_head(name, parser.description or about), ".SH SYNOPSIS"]
    lines += [
        f".B {_escaped_text(parser.prog)}",
        f"[\\fIOPTION\\fR ...] {_command_metavar(parser)} ...",
    ]
    lines += [".SH DESCRIPTION", *_text(parser.description or f"Commands about {about}.")]
    lines += _options("OPTIONS", arguments(parser))
    lines += _options("OPTIONS OF EVERY COMMAND", shared_actions)
    lines.append(".SH COMMANDS")
    help_of = _help_of(parser)
    for word in children:
        if word in families or word == "dev":
            page = _escaped_text(f"{name}-{word}")
            lines += [".TP", f".B {_escaped_text(word)}", _escaped_text(_sentence(help_of[word]))]
            lines += [f"See \\fB{page}\\fR(1)."]
            continue
        lines += [".TP", _usage(word, leaves[word])]
        lines += _text(leaves[word].description or _sentence(help_of[word]))
        own = [action for action in arguments(leaves[word]) if not _among(action, shared_actions)]
        if own:
            lines += [
                ".RS",
                *(line for action in own for line in _option(leaves[word], action)),
                ".RE",
            ]
    lines += _epilogue([parser.epilog, *(leaf.epilog for leaf in leaves.values())])
    yield name, "\n".join(lines) + "\n"
    for word, family in families.items():
        yield from _pages(family, help_of[word])


def _command_page(parser: argparse.ArgumentParser, name: str) -> str:
    lines = [*_head(name, parser.description or ""), ".SH SYNOPSIS"]
    lines += [
        f".B {_escaped_text(parser.prog)}",
        "[\\fIOPTION\\fR ...]",
        ".SH DESCRIPTION",
        *_text(parser.description or ""),
    ]
    lines += [*_text(parser.epilog or ""), *_options("OPTIONS", arguments(parser))]
    return "\n".join(lines) + "\n"


def _head(name: str, about: str) -> list[str]:
    first = re.split(r"[.:] |\.$", " ".join(about.split()))[0]
    return [
        '.\\" Written by tools/man_pages.py.',
        f'.TH {_escaped_text(name.upper())} 1 "" compute\\-agent "compute\\-agent manual"',
        *(".SH NAME", f"{_escaped_text(name)} \\- {_escaped_text(first[0].lower() + first[1:])}"),
    ]


def _see_also(name: str, names: Sequence[str]) -> str:
    program = max(
        (program_name for program_name in REFERENCE if name.startswith(program_name)), key=len
    )
    others = [other for other in names if other.startswith(program) and other != name]
    lines = [f"\\fB{_escaped_text(other)}\\fR(1)," for other in others if other in names]
    reference = f"{DOCUMENTATION}/{REFERENCE[program]}"
    return "\n".join([".SH SEE ALSO", *lines, f"\\fI{_escaped_text(reference)}\\fR"]) + "\n"


def _help_of(parser: argparse.ArgumentParser) -> dict[str, str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return {choice.dest: choice.help or "" for choice in action._choices_actions}
    return {}


def _command_metavar(parser: argparse.ArgumentParser) -> str:
    metavars = (
        action.metavar
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    return f"\\fI{next(metavars) or 'COMMAND'}\\fR"


def _shared_actions(leaves: Sequence[argparse.ArgumentParser]) -> list[argparse.Action]:
    """Return the options that all of several commands have."""
    with_arguments = [arguments(leaf) for leaf in leaves if arguments(leaf)]
    if len(with_arguments) < 2:
        return []
    return [
        action
        for action in with_arguments[0]
        if action.option_strings and all(_among(action, others) for others in with_arguments)
    ]


def _among(action: argparse.Action, others: Sequence[argparse.Action]) -> bool:
    return any(
        (action.option_strings, action.help) == (other.option_strings, other.help)
        for other in others
        if action.option_strings
    )


def _usage(word: str, parser: argparse.ArgumentParser) -> str:
    parts = [f"\\fB{_escaped_text(word)}\\fR"]
    for action in sorted(arguments(parser), key=lambda action: not action.option_strings):
        if action.required and action.option_strings:
            parts.append(f"{_escaped_text(action.option_strings[0])} {_value(parser, action)}")
        elif not action.option_strings:
            parts.append(_value(parser, action))
    return " ".join(parts)


def _value(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    formatter = parser._get_formatter()
    metavar: Any = (
        formatter._get_default_metavar_for_optional
        if action.option_strings
        else formatter._get_default_metavar_for_positional
    )(action)
    return f"\\fI{_escaped_text(formatter._format_args(action, metavar))}\\fR"


def _options(heading: str, actions: Sequence[argparse.Action]) -> list[str]:
    if not actions:
        return []
    parser = argparse.ArgumentParser()
    return [f".SH {heading}", *(line for action in actions for line in _option(parser, action))]


def _option(parser: argparse.ArgumentParser, action: argparse.Action) -> list[str]:
    names = ", ".join(f"\\fB{_escaped_text(option)}\\fR" for option in action.option_strings)
    shown_names = f"{names} {_value(parser, action)}".strip()
    formatter = parser._get_formatter()
    return [".TP", shown_names, *_text(formatter._expand_help(action) if action.help else "")]


def _epilogue(epilogs: Sequence[str | None]) -> list[str]:
    """Return the tables of exit status, and what else follows a help, each once."""
    lines: list[str] = []
    for epilog in dict.fromkeys(epilog for epilog in epilogs if epilog):
        head, separator, rest = epilog.partition("exit status:\n")
        if separator:
            lines += [".SH EXIT STATUS", *_text(head), *_preformatted_lines(rest)]
        else:
            lines += [".SH NOTES", *_preformatted_lines(epilog)]
    return lines


def _text(text: str) -> list[str]:
    return [_escaped_text(line.strip()) for line in text.splitlines() if line.strip()]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _preformatted_lines(text: str) -> list[str]:
    return [".nf", *(_escaped_text(line) for line in text.rstrip().splitlines()), ".fi"]


def _escaped_text(text: str) -> str:
    escaped_text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return re.sub(r"^(?=[.])", r"\\&", escaped_text)


if __name__ == "__main__":
    TARGET.mkdir(exist_ok=True)
    texts = pages()
    for old_page in TARGET.glob("*.1"):
        if old_page.name not in texts:
            old_page.unlink()
    for name, text in texts.items():
        (TARGET / name).write_text(text)
