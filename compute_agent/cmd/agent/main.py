"""The command `compute-agent`: run the agent, or look at what it does.

    run      report this host and keep reporting it
    plan     print what a pass would change, and change nothing
    show     print the tree of resource providers that placement has
    diff     print the differences between two hosts in placement
    status   print the status of the running agent
    report   ask the running agent for a pass now
    history  print the last changes that the agent wrote to placement
    claims   print which instance holds which CPUs and devices of this host
    fit      draw what a request would get of this host now, or why it gets nothing
    drop-claim  forget what an instance holds here, with or without a running agent
    enable   allow new instances on the host; asks the running agent
    disable  keep new instances away from the host; asks the running agent
    clear-fault  offer a device again that was marked as broken; asks the running agent
    doctor   check identity, placement, permissions, CPU sets, devices; change nothing
    capture  copy the machine's description into a directory, for a bug report
    dev      agent, scheduler and placement in one, for trying things out

Each command imports its own needs, so that all stay light.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from compute_agent import __version__, errors
from compute_agent.cmd import program
from compute_agent.cmd.program import JSON, argument
from compute_agent.cmd.trees.form import add_form_options
from compute_agent.daemon import garbage_collection
from compute_agent.programs import configuration_files
from compute_agent.programs.exit_status import Exit, ExitStatus, exit_table

PROGRAM = "compute-agent"
_NODE: Final = argument("--node", metavar="NODE", help="only this node; default: all")


class AgentExit(ExitStatus):
    """Exit status of the commands; those up to 5 are the daemon's, `tracker.decisions.ExitCode`."""

    FINE = 0, "success; run: stopped on request; plan: no changes, no errors; diff: no differences"
    CONFIGURATION = 1, "configuration error, also of plan; doctor: warnings"
    RESHAPE_FAILED = 2, "a reshape failed; report: one is pending; doctor: errors"
    PLACEMENT_REJECTED = 3, "placement rejected a request, or cannot be used"
    DRIVER_FAILED = (
        4,
        "the driver failed or is not ready, no space is left, or there is no such node or host",
    )
    IDENTITY = 5, "identity: lost, contradictory, or the name belongs to another provider"
    WOULD_CHANGE = 6, "plan: changes; diff: differences"


_COMMANDS: Final = (
    (
        "run",
        "main:run",
        "report this host and keep reporting it",
        argument(
            "--adopt",
            action="store_true",
            help="in this start only, take over the provider in placement that has this host's "
            "name",
        ),
    ),
    (
        "plan",
        "inspection:plan",
        "print what a pass would change, and change nothing",
        _NODE,
        JSON,
        argument(
            "--from-capture",
            metavar="DIR",
            help="use the machine captured in DIR instead of this one, with driver "
            "host.HostDriver; if no placement is configured, compare it with an empty placement",
        ),
        argument("--tree", action="store_true", help="also print the tree that a pass would write"),
    ),
    (
        "show",
        "inspection:show",
        "print the tree that placement has",
        _NODE,
        JSON,
        add_form_options,
        argument(
            "--details",
            action="store_true",
            help="all data of each provider: a table of its inventories, its traits and aggregates",
        ),
    ),
    (
        "diff",
        "diff:diff",
        "print the differences between two hosts in placement",
        argument("first", metavar="HOST", help="name or uuid of the root provider of a host"),
        argument(
            "second", metavar="HOST", help="name or uuid of the root provider of the other host"
        ),
        JSON,
    ),
    ("status", "running:status", "print the status of the running agent", JSON),
    (
        "report",
        "running:report",
        "request a pass of the running agent now",
        _NODE,
        argument("--no-wait", action="store_true", help="do not wait for the end of the pass"),
        JSON,
    ),
    ("history", "running:history", "print the last changes that the agent wrote", JSON),
    ("claims", "running:claims", "print what each instance holds of this host", JSON),
    (
        "fit",
        "running:fit",
        "draw what a request would get of this host now",
        argument("spec", metavar="FILE", help="JSON file of the request; - for stdin"),
        argument("--node", metavar="NODE", help="this node; default: the only one"),
    ),
    (
        "drop-claim",
        "running:drop_claim",
        "delete the claim of an instance on this host",
        argument("consumer", metavar="UUID", help="uuid of the instance or of the migration"),
    ),
    ("enable", "running:enable", "allow new instances on the host"),
    (
        "disable",
        "running:disable",
        "allow no new instances on the host",
        argument(
            "--reason", default="", metavar="TEXT", help="reason that the status of the host shows"
        ),
    ),
    (
        "clear-fault",
        "running:clear_fault",
        "report a device again that was marked as broken",
        argument(
            "provider", metavar="PROVIDER", help="uuid or name of the device's resource provider"
        ),
    ),
    ("doctor", "doctor:doctor", "check the host for problems, and change nothing", JSON),
    (
        "capture",
        "capture:capture",
        "copy the description of this machine",
        argument("directory", metavar="DIR", help="directory to write to, new or empty"),
    ),
)
"""Name, module of this folder and function, help and arguments of each command."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command given by `argv` and return its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["dev"]:
        # dev has its own options and parses them itself
        from compute_agent.cmd.dev import main as dev

        return int(dev.run(arguments[1:]))
    files, others = configuration_files.split(PROGRAM, arguments, Exit.BAD_ARGUMENTS)
    namespace = _parser().parse_args([*others, *files])
    return program.run(PROGRAM, namespace, _exit_status_of, reader_may_leave=True)


def _exit_status_of(_namespace: argparse.Namespace, error: errors.ComputeAgentError) -> int:
    from compute_agent.tracker.decisions import exit_code_of

    return Exit.NO_AGENT if error.exit_status is Exit.NO_AGENT else exit_code_of(error)


def _parser() -> argparse.ArgumentParser:
    parser = program.Parser(
        prog=PROGRAM,
        description="Reports this host to placement as a tree of resource providers.",
        epilog=exit_table(statuses=[*AgentExit, Exit.NO_AGENT, Exit.BAD_ARGUMENTS]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, place, text, *arguments in _COMMANDS:
        command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        function = f"compute_agent.cmd.agent.{place}"
        configurations = (program.AGENT,)
        command.set_defaults(function=function, refuse=command.error, configurations=configurations)
        configuration_files.add_options(command, program.default_files(configurations))
        command.add_argument("--debug", action="store_true", help="log everything")
        for add in arguments:
            add(command)
    commands.add_parser(
        "dev", help="run agent, scheduler and placement together on this machine", add_help=False
    )
    return parser


def run(namespace: argparse.Namespace) -> int:
    """Run the agent until it is stopped."""
    with garbage_collection.pause():
        from compute_agent import conf as agent_conf
        from compute_agent.agent import assembly
        from compute_agent.agent.agent import Agent
        from compute_agent.cmd.agent import logging_setup
        from compute_agent.daemon import tracing
        from compute_agent.drift.healing import configured
        from compute_agent.placement.transports.keystone import KeystoneTransport

    conf = program.configuration(namespace)
    logging_setup.set_up_daemon(conf)
    logging_setup.log_start(conf)
    agent_conf.warn_of_useless(conf)
    try:
        KeystoneTransport.from_conf(conf).prepare()
        tracing.start(conf, PROGRAM)
        parts = assembly.build(conf, adopt_asked=namespace.adopt)
        garbage_collection.keep_what_is_loaded()
        return Agent(
            conf, parts, remedies=lambda: configured.remedies(conf, parts.driver, parts.ledger)
        ).run()
    except Exception as error:  # noqa: BLE001 - logged where an operator looks, then printed
        logging_setup.log_fatal(error)
        return program.end(PROGRAM, namespace, _exit_status_of, error)


if __name__ == "__main__":
    sys.exit(main())
