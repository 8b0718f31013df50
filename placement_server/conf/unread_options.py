"""Options in configuration files that nothing reads: misspelt and unknown ones.

Files are shared with other services, so an unknown option of a shared group is named only where it
is almost the name of one that is read here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from oslo_config import cfg

from placement_server import conf as server_conf

LOG = logging.getLogger(__name__)

OWN_GROUPS: Final = frozenset({"placement_server", "placement_database"})
"""Groups that no other service has."""

_CLOSE_OPTION: Final = 0.9
_CLOSE_GROUP: Final = 0.85


# compute_agent.conf.files.unread_options does the same: the two packages import nothing
# of each other, and a third one for these lines would be one more to install.
def warn(conf: cfg.ConfigOpts) -> None:
    """Log one warning that names the options that nothing reads."""
    if unread := unread_options(conf):
        LOG.warning(
            "Nothing reads these options: %s. Correct or remove them.",
            "; ".join(unread),
        )


def unread_options(conf: cfg.ConfigOpts) -> list[str]:
    """Return what the configuration files set that nothing reads, with file and likely meaning."""
    known_options = _known_options(conf)
    return [line for file in configuration_files(conf) for line in _unread_of(file, known_options)]


def configuration_files(conf: cfg.ConfigOpts) -> list[Path]:
    """Return the configuration files that were read, those of directories included."""
    files = [Path(file).expanduser() for file in conf.config_file or ()]
    directories = [Path(directory).expanduser() for directory in conf.config_dir or ()]
    in_directories = [file for directory in directories for file in directory.glob("[!.]*.conf")]
    return [*files, *sorted(in_directories)]


def _unread_of(file: Path, known_options: Mapping[str, set[str]]) -> Iterator[str]:
    sections: dict[str, dict[str, list[str]]] = {}
    cfg.ConfigParser(str(file), sections).parse()
    for section, options in sections.items():
        group = section if section == "DEFAULT" else section.lower()
        if group not in known_options:
            for similar_group in get_close_matches(group, known_options, 1, _CLOSE_GROUP):
                yield f"group [{section}] in {file}, probably [{similar_group}] is meant"
            continue
        for option in sorted(options.keys() - known_options[group]):
            close = get_close_matches(option, known_options[group], 1, _CLOSE_OPTION)
            if close:
                yield f"[{group}]{option} in {file}, probably {close[0]} is meant"
            elif group in OWN_GROUPS:
                yield f"[{group}]{option} in {file}, which is not an option of this version"


def _known_options(conf: cfg.ConfigOpts) -> dict[str, set[str]]:
    """Return the names of options by group: registered ones, those of plugins, former names."""
    known_options: dict[str, set[str]] = {"DEFAULT": set(conf)}
    for name, value in conf.items():
        if isinstance(value, cfg.ConfigOpts.GroupAttr):
            known_options.setdefault(name, set()).update(value)
    for group, options in server_conf.list_opts():
        group_name = group.name if isinstance(group, cfg.OptGroup) else str(group)
        for option in options:
            known_options.setdefault(group_name, set()).update({option.name, option.dest})
            for former in option.deprecated_opts:
                names = known_options.setdefault(former.group or group_name, set())
                names.add(former.name or option.name)
    return known_options
