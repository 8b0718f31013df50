"""The command `compute-manage`: work by hand.

    placement migrate_compute_inventory   the reshape of this host while no service runs
    placement heal_allocations            give instances the allocations that they should have
    placement audit                       find allocations whose consumer does not exist any more
    placement sync_aggregates             mirror host aggregates to placement
    placement rename OLD NEW              give a host's tree another name
    placement delete-host NAME            take a host's tree out of placement
    placement adopt UUID                  give this host the identity of a provider that exists
    host list                             the hosts, their agents, and what is used of them
    host show NAME                        the tree of a host, and who holds what of it
    host enable|disable NAME              allow new instances on a host, or not
    host drain NAME                       disable a host, and follow it until it is empty
    host report NAME                      have the agent of a host report it now
    bundle                                all that helps to find a fault, in one archive

Each command has its own exit status, printed by `--help`. Always: 127 bad arguments, 130
interrupted, 255 unexpected.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from compute_agent import __version__, errors
from compute_agent.cmd import program
from compute_agent.cmd.manage import aggregates, audit, bundle, drain, fleet, heal, host_list, hosts
from compute_agent.cmd.manage.options import BadArgument, ManageParser
from compute_agent.cmd.output import UnknownColumn
from compute_agent.programs import configuration_files
from compute_agent.programs.exit_status import Exit

PROGRAM = "compute-manage"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command given by `argv` and return its exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    files, others = configuration_files.split(PROGRAM, arguments, Exit.BAD_ARGUMENTS)
    namespace = _parser().parse_args([*others, *files])
    namespace.command = f"{namespace.topic} {namespace.command}".strip()
    return program.run(PROGRAM, namespace, _exit_status_of)


def _exit_status_of(namespace: argparse.Namespace, error: errors.ComputeAgentError) -> int:
    if isinstance(error, BadArgument | UnknownColumn):
        return Exit.BAD_ARGUMENTS
    return int(namespace.exit_of(error))


def _parser() -> argparse.ArgumentParser:
    parser = ManageParser(
        prog=PROGRAM,
        description="Tools of operators for hosts in placement. In Nova: nova-manage placement ...",
        epilog="compute-manage TOPIC --help            lists the commands\n"
        "compute-manage TOPIC COMMAND --help    lists the options and exit status of a command",
    )
    parser.add_argument("--version", action="version", version=__version__)
    topics = parser.add_subparsers(dest="topic", required=True, metavar="TOPIC")
    placement = topics.add_parser("placement", help="hosts and their resource providers")
    commands = placement.add_subparsers(dest="command", required=True, metavar="COMMAND")
    hosts.add_commands(commands)
    heal.add_command(commands)
    audit.add_command(commands)
    aggregates.add_command(commands)
    host = topics.add_parser("host", help="the hosts of the fleet and their agents")
    about_hosts = host.add_subparsers(dest="command", required=True, metavar="COMMAND")
    bundle.add_command(topics)
    host_list.add_command(about_hosts)
    fleet.add_commands(about_hosts)
    drain.add_command(about_hosts)
    return parser


if __name__ == "__main__":
    sys.exit(main())
