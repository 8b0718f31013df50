"""Options of every command of `compute-manage`, and the ways to placement that they name."""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from compute_agent import errors
from compute_agent.cmd import program
from compute_agent.programs import configuration_files
from compute_agent.programs.exit_status import SHARED, Exit, exit_table
from compute_agent.programs.whole_numbers import positive

if TYPE_CHECKING:
    from oslo_config import cfg

    from compute_agent.placement.transports.transport import Transport
    from compute_agent.report.client import ReportClient


class BadArgument(errors.ComputeAgentError):
    """An argument whose value proved unusable only once the command ran."""

    exit_status = Exit.BAD_ARGUMENTS


Commands: TypeAlias = "argparse._SubParsersAction[ManageParser]"


class ManageParser(program.Parser):
    """A parser that keeps the lines of descriptions."""

    def __init__(self, *args: Any, **options: Any) -> None:
        # the table of exit status keeps its lines
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*args, **options)


def add_command(
    commands: Commands,
    name: str,
    place: str,
    text: str,
    description: str,
    *arguments: program.Argument,
    exit_of: Callable[[errors.ComputeAgentError], int] = attrgetter("exit_status"),
    epilog: str = "",
) -> ManageParser:
    """Add a command with the options of every command.

    :param place: module of this folder, and function.
    :param exit_of: returns the exit status of an error.
    :param epilog: the table of its exit statuses; by default those of every program.
    """
    parser = commands.add_parser(
        name,
        help=text,
        description=description,
        epilog=epilog or exit_table(statuses=[*SHARED, Exit.BAD_ARGUMENTS]),
    )
    configurations = (program.AGENT, program.SCHEDULER)
    parser.set_defaults(
        function=f"compute_agent.cmd.manage.{place}",
        exit_of=exit_of,
        configurations=configurations,
    )
    common = parser.add_argument_group("options of every command")
    configuration_files.add_options(
        common, program.default_files(configurations), what="the agent's configuration"
    )
    way = common.add_mutually_exclusive_group()
    way.add_argument(
        "--os-cloud",
        metavar="NAME",
        help="name of a cloud in clouds.yaml whose placement is used, not that of [placement]",
    )
    way.add_argument(
        "--placement-config",
        metavar="FILE",
        help="placement.conf; use its database directly, without a running server",
    )
    common.add_argument(
        "--request-timeout",
        type=positive,
        metavar="SECONDS",
        help="wait at most this long for each answer of placement; default: [placement]timeout",
    )
    common.add_argument(
        "--dry-run", action="store_true", help="print what would be done, and do nothing"
    )
    common.add_argument("--json", action="store_true", help="one JSON document on stdout")
    common.add_argument("--verbose", action="store_true", help="log everything on stderr")
    for add in arguments:
        add(parser)
    return parser


def configuration(namespace: argparse.Namespace) -> cfg.ConfigOpts:
    """Parse the configuration and set up logging.

    :raises InvalidConfiguration: it cannot be used.
    """
    from compute_agent.cmd.agent import logging_setup

    conf = logging_setup.quiet_configuration(namespace, verbose=namespace.verbose)
    if namespace.request_timeout is not None:
        conf.set_override("timeout", namespace.request_timeout, group="placement")
    return conf


def transport(namespace: argparse.Namespace, conf: cfg.ConfigOpts) -> Transport:
    """Return the transport to placement: over HTTP, or its server in this process.

    :raises InvalidConfiguration: placement's own configuration file cannot be used.
    :raises PlacementUnavailable: the database it names cannot be used.
    """
    if namespace.os_cloud is not None:
        from compute_agent.placement.transports.cloud import cloud_transport

        limit = namespace.request_timeout
        return cloud_transport(namespace.os_cloud, limit and (limit, limit))
    if namespace.placement_config is None:
        from compute_agent.placement.transports.keystone import KeystoneTransport

        return KeystoneTransport.from_conf(conf)
    if not Path(namespace.placement_config).is_file():
        raise errors.InvalidConfiguration(
            f"--placement-config {namespace.placement_config}: the file does not exist. "
            "Correct the path."
        )
    from compute_agent.placement.transports.in_process import InProcessTransport

    return InProcessTransport.from_config_files([namespace.placement_config])


def report_client(namespace: argparse.Namespace, conf: cfg.ConfigOpts) -> ReportClient:
    """Return a client that has read placement's versions.

    :raises PlacementError: placement cannot be used.
    """
    from compute_agent.report.client import ReportClient

    client = ReportClient(
        transport(namespace, conf),
        use_extensions=conf.compute_agent.use_placement_extensions == "auto",
    )
    client.connect()
    return client


def parameter(text: str) -> tuple[str, str]:
    """Read NAME=VALUE."""
    name, separator, value = text.partition("=")
    if not (name and separator):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE, such as member_of=UUID")
    return name, value


def uuid_of(text: str) -> str:
    """Read a uuid in any form."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a uuid") from None
