"""The command `compute-agent`: run the agent, or look at what it does."""

from __future__ import annotations

import argparse
import contextlib
import gc
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from compute_agent import __version__, errors, extras
from compute_agent.cmd import program
from compute_agent.cmd.shared_options import FORM_OPTIONS, JSON
from compute_agent.programs import configuration_files, module_loading
from compute_agent.programs.arguments import Argument
from compute_agent.programs.exit_status import Exit, ExitStatus, exit_table

PROGRAM = "compute-agent"
UNUSED: Final = ("charset_normalizer", "chardet")
"""requests would guess encodings with them, 3 MiB, while placement and Keystone answer in UTF-8."""
_NODE: Final = "--node NODE  only this node; default: all"


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


_COMMANDS: Final[Sequence[tuple[str, str, str, *tuple[str | Argument, ...]]]] = (
    (
        "run",
        "main:run",
        "report this host and keep reporting it",
        """
        --adopt  in this start only, take over the provider in placement that has this host's name
        """,
    ),
    (
        "plan",
        "inspection:plan",
        "print what a pass would change, and change nothing",
        _NODE,
        JSON,
        """
        --from-capture DIR  use the machine captured in DIR instead of this one, with driver
                            host.HostDriver; if no placement is configured, compare it with an empty
                            placement
        --tree              also print the tree that a pass would write
        """,
    ),
    (
        "show",
        "inspection:show",
        "print the tree that placement has",
        _NODE,
        JSON,
        FORM_OPTIONS,
        """
        --details  all data of each provider: a table of its inventories, its traits and aggregates
        """,
    ),
    (
        "diff",
        "diff:diff",
        "print the differences between two hosts in placement",
        """
        first HOST   name or uuid of the root provider of a host
        second HOST  name or uuid of the root provider of the other host
        """,
        JSON,
    ),
    ("status", "running:status", "print the status of the running agent", JSON),
    (
        "report",
        "running:report",
        "request a pass of the running agent now",
        _NODE,
        "--no-wait  do not wait for the end of the pass",
        JSON,
    ),
    ("history", "running:history", "print the last changes that the agent wrote", JSON),
    ("claims", "running:claims", "print what each instance holds of this host", JSON),
    (
        "fit",
        "running:fit",
        "draw what a request would get of this host now",
        """
        spec FILE    JSON file of the request; - for stdin
        --node NODE  this node; default: the only one
        """,
    ),
    (
        "drop-claim",
        "running:drop_claim",
        "delete the claim of an instance on this host",
        "consumer UUID  uuid of the instance or of the migration",
    ),
    ("enable", "running:enable", "allow new instances on the host"),
    (
        "disable",
        "running:disable",
        "allow no new instances on the host",
        "--reason TEXT ()  reason that the status of the host shows",
    ),
    (
        "clear-fault",
        "running:clear_fault",
        "report a device again that was marked as broken",
        "provider PROVIDER  uuid or name of the device's resource provider",
    ),
    ("doctor", "doctor:doctor", "check the host for problems, and change nothing", JSON),
    (
        "capture",
        "capture:capture",
        "copy the description of this machine",
        "directory DIR  directory to write to, new or empty",
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
    return program.run(
        PROGRAM,
        lambda: _parser().parse_args([*others, *files]),
        _exit_status_of,
        reader_may_leave=True,
    )


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
    configurations = (program.AGENT,)
    for name, place, text, *arguments in _COMMANDS:
        command = program.add_command(
            commands,
            name,
            f"compute_agent.cmd.agent.{place}",
            text,
            configuration_files.options(program.default_files(configurations)),
            "--debug  log everything",
            *arguments,
        )
        command.set_defaults(configurations=configurations)
    commands.add_parser(
        "dev", help="run agent, scheduler and placement together on this machine", add_help=False
    )
    return parser


@contextlib.contextmanager
def imports() -> Iterator[None]:
    """Import without packages that an agent never uses, and without collections."""
    with module_loading.without_collections(), extras.without(*UNUSED):
        yield


def run(namespace: argparse.Namespace) -> int:
    """Run the agent until it is stopped."""
    with imports():
        from compute_agent import conf as agent_conf
        from compute_agent.agent import assembly
        from compute_agent.agent.agent import Agent
        from compute_agent.cmd import logging_setup
        from compute_agent.daemon import signals, tracing
        from compute_agent.drift import repair
        from compute_agent.placement.transports.keystone import KeystoneTransport

    with signals.deferred():
        conf = program.configuration(namespace)
        logging_setup.set_up_daemon(conf)
        logging_setup.log_start(conf)
        agent_conf.warn_of_useless(conf)
        try:
            KeystoneTransport.from_conf(conf).prepare()
            tracing.start(conf, PROGRAM)
            parts = assembly.build(conf, adopt_asked=namespace.adopt)
            gc.collect()
            gc.freeze()
            return Agent(
                conf, parts, remedies=lambda: repair.open_remedies(conf, parts.driver, parts.ledger)
            ).run()
        except Exception as error:  # noqa: BLE001 - logged where an operator looks, then printed
            logging_setup.log_fatal(error)
            return program.end(PROGRAM, namespace, _exit_status_of, error)


if __name__ == "__main__":
    sys.exit(main())
