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
from pathlib import Path
from typing import Final

from compute_agent import __version__, errors
from compute_agent.cmd import program
from compute_agent.cmd.manage import exit_statuses
from compute_agent.cmd.manage.options import (
    BadArgument,
    Commands,
    ManageParser,
    add_command,
    parameter,
    uuid_of,
)
from compute_agent.cmd.output import UnknownColumn, add_table_options
from compute_agent.cmd.placement.arguments import add_member_of
from compute_agent.cmd.program import argument
from compute_agent.cmd.trees.form import add_bytes_option, add_form_options
from compute_agent.programs import configuration_files
from compute_agent.programs.exit_status import Exit
from compute_agent.programs.whole_numbers import positive, whole

PROGRAM = "compute-manage"

_HOST: Final = argument("name", metavar="HOST", help="name or uuid of the host's root provider")
_REASON: Final = argument(
    "--reason", default="", metavar="TEXT", help="reason that the status of the host shows"
)
_INSTANCES: Final = argument(
    "--instances",
    type=Path,
    metavar="FILE",
    help="all existing instances and unfinished migrations, one uuid or one JSON object per line, "
    "instead of [compute_agent]instance_source",
)


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
    _add_host_commands(commands)
    _add_drift_commands(commands)
    host = topics.add_parser("host", help="the hosts of the fleet and their agents")
    _add_fleet_commands(host.add_subparsers(dest="command", required=True, metavar="COMMAND"))
    bundle = add_command(
        topics,
        "bundle",
        "bundle:bundle",
        "collect what helps to find a fault of this machine in one archive",
        "Write the configuration of all programs of this machine without its secrets,\n"
        "their versions, status and logs of the last two days, what `compute-agent doctor` says,\n"
        "and a capture of the machine, into one archive. Run it as root.",
        argument(
            "file",
            nargs="?",
            metavar="FILE",
            help="archive to write; default: compute-agent-HOST-TIME.tar.gz in this directory",
        ),
    )
    bundle.set_defaults(command="")
    return parser


def _add_host_commands(commands: Commands) -> None:
    add_command(
        commands,
        "migrate_compute_inventory",
        "migrate:migrate_compute_inventory",
        "reshape the tree of this host while no service runs",
        "Change the tree of this host in placement, with its allocations, to the\n"
        "configured layout. Run it after an upgrade, before the agent starts. A second run\n"
        "completes a run that was interrupted; otherwise it changes nothing.",
        argument(
            "--node",
            action="append",
            default=[],
            metavar="NODE",
            help="only this node (repeatable)",
        ),
        argument("--plan", metavar="FILE", type=Path, help="write the changes to FILE, as JSON"),
        exit_of=exit_statuses.MigrateExit.of,
        epilog=exit_statuses.MIGRATE_TABLE,
    )
    add_command(
        commands,
        "rename",
        "hosts:rename",
        "rename the tree of a host",
        "Rename the root provider of a host, and all providers named after it.",
        argument("old", metavar="HOST", help="current name of the root provider of the host"),
        argument("new", metavar="NAME", help="new name"),
    )
    add_command(
        commands,
        "delete-host",
        "hosts:delete",
        "delete the tree of a host from placement",
        "Delete all resource providers of a host. The host must have no allocations,\n"
        "and its agent must not run, because it would create the host again.",
        _HOST,
        argument(
            "--evacuated",
            action="store_true",
            help="release what consumers still hold here that now run elsewhere",
        ),
        argument(
            "--force",
            action="store_true",
            help="do not check whether the agent of the host runs, which would create it again",
        ),
    )
    add_command(
        commands,
        "adopt",
        "hosts:adopt",
        "use an existing provider as the root provider of this host",
        "Write the file compute_id, so that the agent of this host reports that tree.",
        argument("uuid", metavar="UUID", type=uuid_of, help="uuid of the root resource provider"),
    )


def _add_drift_commands(commands: Commands) -> None:
    add_command(
        commands,
        "heal_allocations",
        "heal:heal_allocations",
        "create or correct the allocations of instances",
        "If instances have no allocations, or too few, allocate what their flavor,\n"
        "image and ports need, on the host where they run. In Nova:\n"
        "nova-manage placement heal_allocations.",
        _INSTANCES,
        argument(
            "--max-count",
            type=positive,
            metavar="N",
            help="heal at most N instances; repeat the command until its status is 0 or 4",
        ),
        argument("--instance", type=uuid_of, metavar="UUID", help="only this instance"),
        argument(
            "--cell",
            default="",
            metavar="ID",
            help="only instances of this cell, with the name that the source of instances uses",
        ),
        argument(
            "--skip-port-allocations",
            action="store_true",
            help="ignore what ports need, and do not contact Networking",
        ),
        argument(
            "--force",
            action="store_true",
            help="with --instance: also release what the instance holds but does not need",
        ),
        argument(
            "--force-overcommit",
            action="store_true",
            help="send the request to placement even if a host is full; the allocation ratio does "
            "not change, so placement refuses what exceeds the capacity, and the refusal is "
            "reported",
        ),
        exit_of=exit_statuses.HealExit.of,
        epilog=exit_statuses.HEAL_TABLE,
    )
    add_command(
        commands,
        "audit",
        "audit:audit",
        "find allocations whose consumer no longer exists",
        "Find allocations whose consumer no longer exists, and delete them with\n"
        "--delete. Report other inconsistencies. In Nova: nova-manage placement audit.",
        argument(
            "--delete",
            action="store_true",
            help="delete what is found, after a second check half of --min-age later",
        ),
        argument(
            "--resource_provider",
            type=uuid_of,
            metavar="UUID",
            help="only consumers that hold something of this provider",
        ),
        argument(
            "--min-age",
            type=whole(),
            default=3600,
            metavar="SECONDS",
            help="ignore allocations that were written more recently; default: %(default)s",
        ),
        argument(
            "--host-age",
            type=whole(),
            default=86400,
            metavar="SECONDS",
            help="report empty trees of hosts without an agent that were not written for this "
            "time; default: %(default)s",
        ),
        _INSTANCES,
        exit_of=lambda _error: exit_statuses.AuditExit.ERROR,
        epilog=exit_statuses.AUDIT_TABLE,
    )
    add_command(
        commands,
        "sync_aggregates",
        "aggregates:sync_aggregates",
        "put hosts into the aggregates of [compute_scheduler]aggregate_source",
        "Put the root provider of each host into the aggregates of the host in\n"
        "placement, so that member_of finds it. In Nova: nova-manage placement sync_aggregates.",
        argument(
            "--prune",
            action="store_true",
            help="also remove hosts from aggregates that no longer list them",
        ),
        exit_of=exit_statuses.SyncExit.of,
        epilog=exit_statuses.SYNC_TABLE,
    )


def _add_fleet_commands(commands: Commands) -> None:
    add_command(
        commands,
        "list",
        "host_list:list_hosts",
        "the hosts, their agents, and what is used of them",
        "List the root providers with the trait COMPUTE_NODE. The state of the agents is from\n"
        "their announcements on the message bus, and from what placement-server heard last of\n"
        "them: an agent that was not heard for three periods is silent.",
        argument(
            "name", nargs="?", metavar="TEXT", help="only hosts whose name contains this text"
        ),
        argument(
            "--sort",
            choices=("name", "agent", "trouble", "used"),
            default="name",
            help="sort by this; default: name",
        ),
        argument("--troubled", action="store_true", help="only hosts with problems"),
        argument(
            "--required",
            action="append",
            default=[],
            metavar="TRAIT,...",
            help="only hosts of which some provider has these traits; !TRAIT: of which none has it",
        ),
        add_member_of,
        add_table_options,
        argument(
            "--class",
            dest="resource_class",
            metavar="CLASS",
            help="show only the usage of this class",
        ),
        add_bytes_option,
        argument(
            "--watch",
            action="store_true",
            help="repeat the list until q or Ctrl-C; on a terminal in place",
        ),
        argument(
            "--interval",
            type=positive,
            metavar="SECONDS",
            help="seconds between two lists of --watch; default: 2",
        ),
    )
    add_command(
        commands,
        "show",
        "fleet:show",
        "show the tree of a host, and its consumers",
        "Show the tree of a host in placement, its agent, and what each consumer holds.",
        _HOST,
        add_form_options,
    )
    how = (
        ". The agent of the host makes the change. If\n"
        "it is dead, only placement is changed, so a dead host can be disabled. If it runs\n"
        "but cannot be reached, nothing is changed. An agent that returns later reports the\n"
        "state that it had stored itself."
    )
    for verb, text, arguments in (
        ("enable", "allow new instances on the host", (_HOST,)),
        ("disable", "allow no new instances on the host", (_HOST, _REASON)),
    ):
        description = f"{text[0].upper()}{text[1:]}{how}"
        add_command(commands, verb, f"fleet:{verb}", text, description, *arguments)
    add_command(
        commands,
        "report",
        "fleet:report",
        "request a pass of the agent of a host now",
        "Request a pass of the agent of a host now, and wait for its end.",
        _HOST,
    )
    add_command(
        commands,
        "drain",
        "drain:drain_host",
        "disable a host, and show the consumers that must leave it",
        "Disable a host: through its agent, or only in placement if no agent is heard. Then print\n"
        "its consumers, and for each another host that has room. The command does not move\n"
        "guests. It can be repeated on a host that is already disabled.\n"
        "It is unfinished while consumers are left, and fails if not all fit on other hosts.",
        _HOST,
        _REASON,
        argument("--watch", action="store_true", help="wait until the host is empty"),
        argument(
            "--timeout",
            type=positive,
            metavar="SECONDS",
            help="exit --watch after this time; default: never",
        ),
        argument(
            "--interval",
            type=positive,
            default=5,
            metavar="SECONDS",
            help="seconds between two checks of --watch; default: %(default)s",
        ),
        argument(
            "--with",
            dest="parameters",
            type=parameter,
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="add this to all queries, such as member_of=UUID; placement does not store "
            "requests",
        ),
        argument("--undo", action="store_true", help="enable a host that was drained"),
    )


if __name__ == "__main__":
    sys.exit(main())
