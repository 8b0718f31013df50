"""Options of every command of `compute-manage`, and the ways to placement that they name."""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from compute_agent import errors
from compute_agent.cmd import program
from compute_agent.cmd.shared_options import JSON
from compute_agent.programs import configuration_files
from compute_agent.programs.arguments import Argument, Container, arguments
from compute_agent.programs.exit_status import SHARED, Exit, exit_table

if TYPE_CHECKING:
    from oslo_config import cfg

    from compute_agent.report.client import ReportClient


class BadArgument(errors.ComputeAgentError):
    """An argument whose value proved unusable only once the command ran."""

    exit_status = Exit.BAD_ARGUMENTS


Commands: TypeAlias = "argparse._SubParsersAction[program.Parser]"


def add_command(
    commands: Commands,
    name: str,
    place: str,
    text: str,
    *declared_arguments: str | Argument,
    exit_of: Callable[[errors.ComputeAgentError], int] = attrgetter("exit_status"),
    epilog: str = "",
    **words: Any,
) -> argparse.ArgumentParser:
    """Add a command with the options of every command.

    :param place: module of this folder, and function.
    :param exit_of: returns the exit status of an error.
    :param epilog: the table of its exit statuses; by default those of every program.
    """
    parser = program.add_command(
        commands,
        name,
        f"compute_agent.cmd.manage.{place}",
        text,
        _add_common_options,
        *declared_arguments,
        epilog=epilog or exit_table(statuses=[*SHARED, Exit.BAD_ARGUMENTS]),
        **words,
    )
    parser.set_defaults(exit_of=exit_of, configurations=_CONFIGURATIONS)
    return parser


_CONFIGURATIONS: Final = (program.AGENT, program.SCHEDULER)


def _add_common_options(parser: Container) -> None:
    common = parser.add_argument_group("options of every command")
    files = program.default_files(_CONFIGURATIONS)
    configuration_files.options(files, "the agent's configuration")(common)
    arguments(
        """
        --os-cloud NAME          name of a cloud in clouds.yaml whose placement is used, not that of
                                 [placement]
        --placement-config FILE  placement.conf; use its database directly, without a running server
        """
    )(common.add_mutually_exclusive_group())
    arguments(
        f"""
        --request-timeout SECONDS  wait at most this long for each answer of placement; default:
                                   [placement]timeout
        --dry-run                  print what would be done, and do nothing
        {JSON}
        --verbose:debug            log everything on stderr
        """
    )(common)


def configuration(namespace: argparse.Namespace) -> cfg.ConfigOpts:
    """Parse the configuration and set up logging.

    :raises InvalidConfiguration: it cannot be used.
    """
    from compute_agent.cmd import logging_setup

    conf = logging_setup.quiet_configuration(namespace)
    if namespace.request_timeout is not None:
        conf.set_override("timeout", namespace.request_timeout, group="placement")
    return conf


def report_client(namespace: argparse.Namespace, conf: cfg.ConfigOpts) -> ReportClient:
    """Return a client that has read placement's versions.

    :raises PlacementError: placement cannot be used.
    """
    from compute_agent.report.client import ReportClient

    client = ReportClient(
        program.transport(namespace, conf),
        use_extensions=conf.compute_agent.use_placement_extensions == "auto",
    )
    client.connect()
    return client


def uuid_of(text: str) -> str:
    """Read a uuid in any form."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a uuid") from None
