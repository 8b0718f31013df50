"""The options of the server, under the names that operators of OpenStack Placement know.

There is no global configuration: `new_config` makes an object, and code that needs options
gets it as an argument.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from oslo_config import cfg
from oslo_log import log

from compute_agent.programs import configuration_files, tracing
from placement_server import __version__
from placement_server.conf import (
    database,
    published,
    server,
)

PROJECT: Final = "placement"

CONFIG_DIR_VARIABLE: Final = "OS_PLACEMENT_CONFIG_DIR"
"""The web application looks for its file here before it looks at the usual places."""

_KEYSTONE_SECONDS: Final = 10
"""Seconds for one attempt to ask Keystone."""

OWN_GROUPS: Final = frozenset({"placement_server", "placement_database"})
"""Groups that no other service has."""

_OPTIONS: Final[dict[str | None, Sequence[cfg.Opt]]] = {
    **published.OPTS,
    server.GROUP: server.OPTS,
    tracing.GROUP: tracing.OPTS,
    database.GROUP: database.OPTS,
}
"""Our own options, by group."""

_CORS_METHODS: Final = ["GET", "PUT", "POST", "DELETE", "PATCH"]
_CORS_ALLOW_HEADERS: Final = [
    "X-Auth-Token",
    "X-Openstack-Request-Id",
    "X-Identity-Status",
    "X-Roles",
    "X-Service-Catalog",
    "X-User-Id",
    "X-Tenant-Id",
    "OpenStack-API-Version",
]
_CORS_EXPOSE_HEADERS: Final = [
    "X-Auth-Token",
    "X-Openstack-Request-Id",
    "X-Subject-Token",
    "X-Service-Token",
    "OpenStack-API-Version",
]


class InvalidConfiguration(Exception):
    """A configuration that cannot be used. The text names what is wrong, where, and what to do."""


def new_config(
    args: Sequence[str] = (), config_files: Sequence[str | os.PathLike[str]] | None = None
) -> cfg.ConfigOpts:
    """Return all options, read from the command line, files and OS_* variables of the environment.

    :param args: command line arguments of oslo.config, such as `--config-file`.
    :param config_files: read these instead of looking in the usual places; an empty list reads
        none.
    :raises InvalidConfiguration: a file cannot be read, or an option has a value of a wrong type.
    """
    conf = _of_the_command_line()
    parse(conf, args, config_files)
    return conf


def parse(
    conf: cfg.ConfigOpts,
    args: Sequence[str] = (),
    config_files: Sequence[str | os.PathLike[str]] | None = None,
    *,
    prog: str | None = None,
    description: str | None = None,
) -> None:
    """Read the command line, then register all other options and read the files.

    A command line that asks for help, or is wrong, ends the program before libraries are imported
    for their options; see `new_config`.

    :param prog: the name of the program, for its help.
    :param description: its purpose, likewise.
    """
    files = _files_of_environment() if config_files is None else config_files
    try:
        conf(
            list(args),
            project=PROJECT,
            prog=prog,
            version=__version__,
            description=description,
            default_config_files=None if files is None else [os.fspath(file) for file in files],
            default_config_dirs=None if files is None else [],
        )
        register_opts(conf)
        wrong_lines = list(configuration_files.wrong_values(conf))
    except (cfg.ConfigFilesNotFoundError, cfg.ConfigFilesPermissionDeniedError) as error:
        is_denied = isinstance(error, cfg.ConfigFilesPermissionDeniedError)
        raise InvalidConfiguration(
            f"The configuration file {', '.join(error.config_files)} cannot be read: "
            f"{'permission denied' if is_denied else 'it does not exist'}."
        ) from error
    except (cfg.Error, ValueError, OSError) as error:
        raise InvalidConfiguration(
            f"The configuration is not valid: {configuration_files.sentence(error)}"
        ) from error
    if wrong_lines:
        raise InvalidConfiguration(configuration_files.fault_of(wrong_lines))


def with_commands(add_commands: Callable[[Any], None]) -> cfg.ConfigOpts:
    """Return the options of a command line, with the commands of a program.

    :param add_commands: adds them to the subparsers of argparse.
    """
    conf = _of_the_command_line()
    conf.register_cli_opt(cfg.SubCommandOpt("command", title="Command", handler=add_commands))
    return conf


def _of_the_command_line() -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    return conf


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register every option, those of libraries included."""
    # not at the top: a help shows none of theirs, and they import much
    from keystonemiddleware.auth_token import _opts as keystone_opts
    from oslo_middleware import cors, http_proxy_to_wsgi
    from oslo_middleware.healthcheck import opts as healthcheck_opts
    from oslo_policy import opts as policy_opts

    for group, options in _OPTIONS.items():
        conf.register_opts(options, group=group)
    log.set_defaults(
        # urllib3 warns of each connection to Keystone that it does not keep
        default_log_levels=[
            *log.get_default_log_levels(),
            "routes=INFO",
            "urllib3.connectionpool=ERROR",
        ],
    )
    if "log_config_append" not in conf:
        # a configuration that a service shares with a server in its tests has them, and is parsed
        log.register_options(conf)
    cors.set_defaults(
        allow_methods=_CORS_METHODS,
        allow_headers=_CORS_ALLOW_HEADERS,
        expose_headers=_CORS_EXPOSE_HEADERS,
    )
    conf.register_opts(cors.OPTS, group="cors")
    conf.register_opts(http_proxy_to_wsgi.OPTS, group="oslo_middleware")
    conf.register_opts(healthcheck_opts.HEALTHCHECK_OPTS, group="healthcheck")
    policy_opts._register(conf)
    # None would be to wait for a Keystone that hangs as long as it does.
    cfg.set_defaults(keystone_opts._OPTS, http_connect_timeout=_KEYSTONE_SECONDS)
    # list_opts() would copy each of them, every time
    for keystone_group, keystone_options in keystone_opts.auth_token_opts:
        conf.register_opts(keystone_options, group=keystone_group)


def list_opts() -> list[tuple[str | None, list[cfg.Opt]]]:
    """Return our own options, for oslo-config-generator."""
    return [(group, list(options)) for group, options in _OPTIONS.items()]


def set_sample_defaults() -> None:
    """Give options of libraries our defaults, for oslo-config-generator."""
    register_opts(cfg.ConfigOpts())


def _files_of_environment() -> list[Path] | None:
    directory = os.environ.get(CONFIG_DIR_VARIABLE, "").strip()
    return [Path(directory) / f"{PROJECT}.conf"] if directory else None


def unread_options(conf: cfg.ConfigOpts) -> list[str]:
    """Return what the configuration files set that nothing reads, with file and likely meaning."""
    return configuration_files.unread_options(conf, list_opts(), OWN_GROUPS)


def warn_of_useless(conf: cfg.ConfigOpts) -> None:
    """Log which options of the configuration files have no effect, and which nothing reads."""
    configuration_files.warn_of_useless(conf, published.WITHOUT_EFFECT, unread_options(conf))
