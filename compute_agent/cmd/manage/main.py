"""The command `compute-manage`: work by hand.

Each command has its own exit status, printed by `--help`. Always: 127 bad arguments, 130
interrupted, 255 unexpected.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from compute_agent import __version__, errors
from compute_agent.cmd import program
from compute_agent.cmd.manage import exit_statuses
from compute_agent.cmd.manage.options import (
    BadArgument,
    Commands,
    add_command,
    uuid_of,
)
from compute_agent.cmd.output import UnknownColumn
from compute_agent.cmd.placement.arguments import MEMBER_OF
from compute_agent.cmd.shared_options import BYTES, FORM_OPTIONS, TABLE_OPTIONS
from compute_agent.programs import configuration_files
from compute_agent.programs.arguments import arguments
from compute_agent.programs.exit_status import Exit
from compute_agent.programs.whole_numbers import whole

PROGRAM = "compute-manage"

_HOST: Final = "name HOST  name or uuid of the host's root provider"
_REASON: Final = "--reason TEXT ()  reason that the status of the host shows"
_INSTANCES: Final = arguments(
    """
    --instances FILE  all existing instances and unfinished migrations, one uuid or one JSON object
                      per line, instead of [compute_agent]instance_source
    """,
    instances=Path,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command given by `argv` and return its exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    files, others = configuration_files.split(PROGRAM, arguments, Exit.BAD_ARGUMENTS)

    def parse() -> argparse.Namespace:
        namespace = _parser().parse_args([*others, *files])
        namespace.command = f"{namespace.topic} {namespace.command}".strip()
        return namespace

    return program.run(PROGRAM, parse, _exit_status_of)


def _exit_status_of(namespace: argparse.Namespace, error: errors.ComputeAgentError) -> int:
    if isinstance(error, BadArgument | UnknownColumn):
        return Exit.BAD_ARGUMENTS
    return int(namespace.exit_of(error))


def _parser() -> argparse.ArgumentParser:
    parser = program.Parser(
        prog=PROGRAM,
        formatter_class=argparse.RawDescriptionHelpFormatter,
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
        """
        file FILE ?  archive to write; default: compute-agent-HOST-TIME.tar.gz in this directory
        """,
        description="Write the configuration of all programs of this machine without its secrets,\n"
        "their versions, status and logs of the last two days, what `compute-agent doctor` says,\n"
        "and a capture of the machine, into one archive. Run it as root.",
    )
    bundle.set_defaults(command="")
    return parser


def _add_host_commands(commands: Commands) -> None:
    add = partial(add_command, commands)
    add(
        "migrate_compute_inventory",
        "migrate:migrate_compute_inventory",
        "reshape the tree of this host while no service runs",
        arguments(
            """
            --node NODE *  only this node (repeatable)
            --plan FILE    write the changes to FILE, as JSON
            """,
            plan=Path,
        ),
        description="Change the tree of this host in placement, with its allocations, to the\n"
        "configured layout. Run it after an upgrade, before the agent starts. A second run\n"
        "completes a run that was interrupted; otherwise it changes nothing.",
        exit_of=exit_statuses.MigrateExit.of,
        epilog=exit_statuses.MIGRATE_TABLE,
    )
    add(
        "rename",
        "hosts:rename",
        "rename the tree of a host",
        """
        old HOST  current name of the root provider of the host
        new NAME  new name
        """,
        description="Rename the root provider of a host, and all providers named after it.",
    )
    add(
        "delete-host",
        "hosts:delete",
        "delete the tree of a host from placement",
        _HOST,
        """
        --evacuated  release what consumers still hold here that now run elsewhere
        --force      do not check whether the agent of the host runs, which would create it again
        """,
        description="Delete all resource providers of a host. The host must have no allocations,\n"
        "and its agent must not run, because it would create the host again.",
    )
    add(
        "adopt",
        "hosts:adopt",
        "use an existing provider as the root provider of this host",
        arguments("uuid UUID  uuid of the root resource provider", uuid=uuid_of),
        description="Write the file compute_id, so that the agent of this host reports that tree.",
    )


def _add_drift_commands(commands: Commands) -> None:
    add = partial(add_command, commands)
    add(
        "heal_allocations",
        "heal:heal_allocations",
        "create or correct the allocations of instances",
        _INSTANCES,
        arguments(
            """
            --max-count N            heal at most N instances; repeat the command until its status
                                     is 0 or 4
            --instance UUID          only this instance
            --cell ID ()             only instances of this cell, with the name that the source of
                                     instances uses
            --skip-port-allocations  ignore what ports need, and do not contact Networking
            --force                  with --instance: also release what the instance holds but does
                                     not need
            --force-overcommit       send the request to placement even if a host is full; the
                                     allocation ratio does not change, so placement refuses what
                                     exceeds the capacity, and the refusal is reported
            """,
            instance=uuid_of,
        ),
        description="If instances have no allocations, or too few, allocate what their flavor,\n"
        "image and ports need, on the host where they run. In Nova:\n"
        "nova-manage placement heal_allocations.",
        exit_of=exit_statuses.of_placement(exit_statuses.HealExit.FAILED),
        epilog=exit_statuses.HEAL_TABLE,
    )
    add(
        "audit",
        "audit:audit",
        "find allocations whose consumer no longer exists",
        arguments(
            """
            --delete                    delete what is found, after a second check half of --min-age
                                        later
            --resource_provider UUID    only consumers that hold something of this provider
            --min-age SECONDS (3600)    ignore allocations that were written more recently
            --host-age SECONDS (86400)  report empty trees of hosts without an agent that were not
                                        written for this time
            """,
            resource_provider=uuid_of,
            min_age=whole(),
            host_age=whole(),
        ),
        _INSTANCES,
        description="Find allocations whose consumer no longer exists, and delete them with\n"
        "--delete. Report other inconsistencies. In Nova: nova-manage placement audit.",
        exit_of=lambda _error: exit_statuses.AuditExit.ERROR,
        epilog=exit_statuses.AUDIT_TABLE,
    )
    add(
        "sync_aggregates",
        "aggregates:sync_aggregates",
        "put hosts into the aggregates of [compute_scheduler]aggregate_source",
        "--prune  also remove hosts from aggregates that no longer list them",
        description="Put the root provider of each host into the aggregates of the host in\n"
        "placement, so that member_of finds it. In Nova: nova-manage placement sync_aggregates.",
        exit_of=exit_statuses.of_placement(exit_statuses.SyncExit.UNEXPECTED_ANSWER),
        epilog=exit_statuses.SYNC_TABLE,
    )


def _add_fleet_commands(commands: Commands) -> None:
    add = partial(add_command, commands)
    add(
        "list",
        "host_list:list_hosts",
        "the hosts, their agents, and what is used of them",
        """
        name TEXT ?                              only hosts whose name contains this text
        --sort {name,agent,trouble,used} (name)  sort by this
        --troubled                               only hosts with problems
        --required TRAIT,... *                   only hosts of which some provider has these traits;
                                                 !TRAIT: of which none has it
        """,
        MEMBER_OF,
        TABLE_OPTIONS,
        f"""
        --class:resource_class CLASS  show only the usage of this class
        {BYTES}
        --watch                       repeat the list until q or Ctrl-C; on a terminal in place
        --interval SECONDS            seconds between two lists of --watch; default: 2
        """,
        description="List the root providers with the trait COMPUTE_NODE. The state of the agents "
        "is from\ntheir announcements on the message bus, and from what placement-server heard "
        "last of\nthem: an agent that was not heard for three periods is silent.",
    )
    add(
        "show",
        "fleet:show",
        "show the tree of a host, and its consumers",
        _HOST,
        FORM_OPTIONS,
        description="Show the tree of a host in placement, its agent, and what each consumer "
        "holds.",
    )
    how = (
        ". The agent of the host makes the change. If\n"
        "it is dead, only placement is changed, so a dead host can be disabled. If it runs\n"
        "but cannot be reached, nothing is changed. An agent that returns later reports the\n"
        "state that it had stored itself."
    )
    for verb, text, declared in (
        ("enable", "allow new instances on the host", (_HOST,)),
        ("disable", "allow no new instances on the host", (_HOST, _REASON)),
    ):
        description = f"{text[0].upper()}{text[1:]}{how}"
        add(verb, f"fleet:{verb}", text, *declared, description=description)
    add(
        "report",
        "fleet:report",
        "request a pass of the agent of a host now",
        _HOST,
        description="Request a pass of the agent of a host now, and wait for its end.",
    )
    add(
        "drain",
        "drain:drain_host",
        "disable a host, and show the consumers that must leave it",
        _HOST,
        _REASON,
        """
        --watch                         wait until the host is empty
        --timeout SECONDS               exit --watch after this time; default: never
        --interval SECONDS (5)          seconds between two checks of --watch
        --with:parameters NAME=VALUE *  add this to all queries, such as member_of=UUID; placement
                                        does not store requests
        --undo                          enable a host that was drained
        """,
        description="Disable a host: through its agent, or only in placement if no agent is heard. "
        "Then print\nits consumers, and for each another host that has room. The command does not "
        "move\nguests. It can be repeated on a host that is already disabled.\n"
        "It is unfinished while consumers are left, and fails if not all fit on other hosts.",
    )


if __name__ == "__main__":
    sys.exit(main())
