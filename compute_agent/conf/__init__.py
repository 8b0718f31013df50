"""Configuration of the agent and the scheduler: one `ConfigOpts` with every option registered.

Only the edges (commands, services, drivers, the scheduler's assembly) import this package. There is
no global configuration object: callers pass options on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from oslo_config import cfg

from compute_agent import errors
from compute_agent.conf import (
    accepted,
    compute,
    compute_agent,
    default,
    devices,
    libvirt,
    networks,
    scheduler,
    services,
)
from compute_agent.programs import configuration_files, tracing
from compute_agent.programs.configuration_files import sentence, wrong_values

_TABLES: Final[tuple[Mapping[str, list[cfg.Opt]], ...]] = (
    *(module.OPTIONS for module in (default, compute_agent, compute, devices, libvirt)),
    *(module.OPTIONS for module in (accepted, scheduler, networks)),
    {tracing.GROUP: tracing.OPTS},
)
"""Options by group, of each module. A group with <> in its name stands for several, which are
named by other options, and registered once the files are parsed."""

OWN_GROUPS = frozenset({"compute_agent", "compute_scheduler", "gpu", "host", "nic"})
"""Groups that no other service has."""

_NUMBERED_GROUPS = ("mdev_", "neutron_physnet_")
"""Beginnings of groups that are read where another option names them."""

LOG = logging.getLogger(__name__)


def new_config(
    argv: Sequence[str] = (),
    project: str = "compute-agent",
    default_config_files: Sequence[str] | None = None,
    default_config_dirs: Sequence[str] | None = None,
) -> cfg.ConfigOpts:
    """Parse `argv` and the configuration files, and check the value of every option.

    :param argv: options of oslo.config only, that is `--config-file`, `--config-dir` and those
        of oslo.log.
    :param project: names the directory below `/etc` in which files are looked for.
    :param default_config_files: read when `argv` names none, instead of looking for them.
    :param default_config_dirs: likewise.
    :raises InvalidConfiguration: a file that is missing, unreadable or does not parse, or a value
        of the wrong type; the message has the file, the option and the value.
    """
    conf = unparsed_config()
    from oslo_log import log

    log.register_options(conf)
    try:
        conf(
            list(argv),
            project=project,
            prog=project,
            default_config_files=_as_list(default_config_files),
            default_config_dirs=_as_list(default_config_dirs),
        )
    except (cfg.Error, ValueError, OSError) as error:
        raise errors.InvalidConfiguration(
            f"The configuration of {project} cannot be read: {sentence(error)} Correct the file "
            "or the --config-file option."
        ) from error
    devices.register_numbered_groups(conf)
    networks.register_numbered_groups(conf)
    check_values(conf)
    default.set_machine_defaults(conf)
    return conf


def unparsed_config() -> cfg.ConfigOpts:
    """Return a new `ConfigOpts` with every option registered and nothing parsed."""
    conf = cfg.ConfigOpts()
    for group, options in _tables():
        if group == "DEFAULT":
            # host is read as conf.DEFAULT.host: a group of the same name hides it elsewhere
            conf.register_opts([option for option in options if option.name == "host"], group=group)
            conf.register_opts([option for option in options if option.name != "host"])
        elif "<" not in group:
            conf.register_opts(options, group=group)
    services.register_opts(conf)
    return conf


def _tables() -> Iterator[tuple[str, list[cfg.Opt]]]:
    for table in _TABLES:
        yield from table.items()


def list_opts() -> list[tuple[Any, list[cfg.Opt]]]:
    """Return every option by group, for oslo-config-generator."""
    return [*_tables(), *services.list_opts()]


def reload(conf: cfg.ConfigOpts) -> list[str]:
    """Read the configuration files again, and change the options that may change while running.

    :returns: one line per option that changed, `[group]name: old -> new`.
    :raises InvalidConfiguration: the files cannot be used; the old values stay in force. Or the log
        cannot be set up by the new ones.
    """
    try:
        # mutating accepts a value of the wrong type, which fails only when it is read, so the
        # files are tried on a configuration of its own first
        new_config((), conf.project, conf.config_file, conf.config_dir)
        changed_options = conf.mutate_config_files()
    except (cfg.Error, errors.InvalidConfiguration) as error:
        raise errors.InvalidConfiguration(
            f"The values read before stay in force: {error} Then reload again."
        ) from error
    except Exception as error:  # whatever a log makes of its file, at the end
        raise errors.InvalidConfiguration(
            f"The options are read again, and the log cannot be set up by them: {error}. Correct "
            "[DEFAULT]log_config_append, or that file, and reload again."
        ) from error
    lines = [
        f"[{group or 'DEFAULT'}]{name}: {old!r} -> {new!r}"
        for (group, name), (old, new) in changed_options.items()
    ]
    return sorted(lines)


def check_values(conf: cfg.ConfigOpts) -> None:
    """Read every registered option once, so that a wrong type shows at start and not later.

    :raises InvalidConfiguration: all wrong values in one message.
    """
    wrong_lines = [
        *wrong_values(conf),
        *(
            f"option [{group}]endpoint_override {fault}"
            for group in sorted(conf._groups)
            if "endpoint_override" in conf[group]
            and (url := conf[group].endpoint_override)
            and (fault := services.url_fault(url))
        ),
    ]
    if wrong_lines:
        raise errors.InvalidConfiguration(configuration_files.fault_of(wrong_lines))


def unread_options(conf: cfg.ConfigOpts) -> list[str]:
    """Return what the configuration files set that nothing reads, with file and likely meaning."""
    return configuration_files.unread_options(conf, _listed(conf), OWN_GROUPS, _NUMBERED_GROUPS)


def warn_of_useless(conf: cfg.ConfigOpts) -> None:
    """Log which options of the configuration files have no effect, and which nothing reads."""
    configuration_files.warn_of_useless(conf, accepted.names(), unread_options(conf))
    if left := configuration_files.left_options(conf, _listed(conf), OWN_GROUPS):
        LOG.info("Options of the same files that only other programs read: %s.", ", ".join(left))


def _listed(conf: cfg.ConfigOpts) -> list[tuple[Any, list[cfg.Opt]]]:
    """Return every option by group, with those of the plugin that is used: no other is loaded."""
    return [*_tables(), *services.list_opts(conf.placement.auth_type)]


def _as_list(paths: Sequence[str] | None) -> list[str] | None:
    return None if paths is None else list(paths)
