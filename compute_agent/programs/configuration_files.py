"""Configuration files: the options that name them, and what in them is wrong or without effect."""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Final

from oslo_config import cfg

from compute_agent.programs.arguments import Argument, arguments

LOG = logging.getLogger(__name__)

_LOCATION: Final = r"(?s)^Value for option \S+ from (?P<where>.*?) is not valid: "
_DETAIL: Final = r"detail='(?P<detail>[^']*)'"
_OPTIONS: Final = ("--config-file", "--config-dir")
_CLOSE_OPTION: Final = 0.9
_CLOSE_GROUP: Final = 0.85
_OF_THE_BUS: Final = ("rpc_", "conn_pool_", "executor_")


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


def wrong_values(values: Mapping[str, Any], group: str = "DEFAULT") -> Iterator[str]:
    """Read every option once, and iterate over the wrong ones: option, file and reason.

    oslo.config converts a value when it is first used; an operator wants to know at the start.
    """
    for name in sorted(values):
        try:
            value = values[name]
        except ValueError as error:
            yield _wrong_value(group, name, error)
        except cfg.Error as error:
            yield f"option [{group}]{name}: {sentence(error)}"
        else:
            if isinstance(value, cfg.ConfigOpts.GroupAttr):
                yield from wrong_values(value, name)


def fault_of(wrong_lines: Iterable[str]) -> str:
    """Return the text of the error about wrong values."""
    texts = "; ".join(wrong_lines)
    return f"The configuration has values that cannot be used: {texts}. Correct them."


def warn_of_useless(
    conf: cfg.ConfigOpts,
    without_effect: Iterable[tuple[str | None, str]],
    unread_lines: Sequence[str],
) -> None:
    """Log a warning of options that the files set and that have no effect, and one of unread ones.

    :param without_effect: group (`None` for the default group) and name of options that parse
        only so that an existing file stays valid.
    """
    names = [
        f"[{group or 'DEFAULT'}]{name}"
        for group, name in without_effect
        if (place := conf.get_location(name, group)) and place.location.is_user_controlled
    ]
    if names:
        LOG.warning(
            "The configuration sets options that have no effect in this version: %s. Remove them, "
            "unless another program reads the same file.",
            ", ".join(names),
        )
    if unread_lines:
        LOG.warning(
            "Nothing reads these options: %s. Correct or remove them.", "; ".join(unread_lines)
        )


def sentence(error: Exception) -> str:
    """Return the text of an error without the line of a file that it quotes: it may be secret."""
    line = getattr(error.__context__, "line", None)
    text = " ".join(str(error).replace(f": {line!r}", "").split())
    return text if text.endswith(".") else text + "."


def _wrong_value(group: str, option: str, error: ValueError) -> str:
    text = str(error)
    match = re.match(_LOCATION, text)
    where, reason = "", text
    if match:
        detail = re.search(_DETAIL, match["where"])
        where = f" in {detail['detail'] if detail else match['where']}"
        reason = text[match.end() :]
    return f"option [{group}]{option}{where}: {reason}"


def unread_options(
    conf: cfg.ConfigOpts,
    listed_options: Iterable[tuple[Any, Iterable[cfg.Opt]]],
    own_groups: Collection[str],
    numbered_groups: tuple[str, ...] = (),
) -> list[str]:
    """Return what the configuration files set that nothing reads, with file and likely meaning.

    :param listed_options: options by group, whose former names are read too.
    :param own_groups: groups that no other service has.
    :param numbered_groups: beginnings of groups that are read where another option names them.
    """
    known_options = _known_names(conf, listed_options)
    return [
        line
        for file in files_of(conf)
        for line in _unread_of(file, known_options, own_groups, numbered_groups)
    ]


def left_options(
    conf: cfg.ConfigOpts,
    listed_options: Iterable[tuple[Any, Iterable[cfg.Opt]]],
    own_groups: Collection[str],
) -> list[str]:
    """Return the options that the files set for other programs alone, of groups that are read.

    Libraries read theirs where they are used: those of the message bus, and of every way to
    authenticate.
    """
    known_options = _known_names(conf, listed_options)
    return [
        f"[{group}]{option}"
        for file in files_of(conf)
        for group, options in _sections(file)
        if group in known_options.keys() - own_groups and "auth_type" not in known_options[group]
        for option in sorted(options - known_options[group])
        if not (group == "DEFAULT" and option.startswith(_OF_THE_BUS))
        and not _closest(option, known_options[group], _CLOSE_OPTION)
    ]


def files_of(conf: cfg.ConfigOpts) -> list[Path]:
    """Return the configuration files that were read, those of directories included."""
    files = [Path(file).expanduser() for file in conf.config_file or ()]
    directories = [Path(directory).expanduser() for directory in conf.config_dir or ()]
    in_directories = [file for directory in directories for file in directory.glob("[!.]*.conf")]
    return [*files, *sorted(in_directories)]


def _unread_of(
    file: Path,
    known_options: Mapping[str, set[str]],
    own_groups: Collection[str],
    numbered_groups: tuple[str, ...],
) -> Iterator[str]:
    for group, options in _sections(file):
        if group not in known_options:
            if group.startswith(numbered_groups):
                continue
            for similar_group in _closest(group, known_options, _CLOSE_GROUP):
                yield f"group [{group}] in {file}, probably [{similar_group}] is meant"
            continue
        for option in sorted(options - known_options[group]):
            close = _closest(option, known_options[group], _CLOSE_OPTION)
            if close:
                yield f"[{group}]{option} in {file}, probably {close[0]} is meant"
            elif group in own_groups:
                yield f"[{group}]{option} in {file}, which is not an option of this version"


def _closest(name: str, known_names: Iterable[str], likeness: float) -> list[str]:
    from difflib import get_close_matches  # only for a name that is not known

    return get_close_matches(name, known_names, 1, likeness)


def _sections(file: Path) -> Iterator[tuple[str, Set[str]]]:
    sections: dict[str, dict[str, list[str]]] = {}
    cfg.ConfigParser(str(file), sections).parse()
    for section, options in sections.items():
        yield section if section == "DEFAULT" else section.lower(), options.keys()


def _known_names(
    conf: cfg.ConfigOpts, listed_options: Iterable[tuple[Any, Iterable[cfg.Opt]]]
) -> dict[str, set[str]]:
    """Return the names of options by group: registered ones, those of plugins, former names."""
    known_options: dict[str, set[str]] = {"DEFAULT": set(conf)}
    for name, value in conf.items():
        if isinstance(value, cfg.ConfigOpts.GroupAttr):
            known_options.setdefault(name, set()).update(value)
    for group, options in listed_options:
        group_name = group.name if isinstance(group, cfg.OptGroup) else str(group)
        for option in options:
            known_options.setdefault(group_name, set()).update({option.name, option.dest})
            for former in option.deprecated_opts:
                names = known_options.setdefault(former.group or group_name, set())
                names.add(former.name or option.name)
    return known_options
