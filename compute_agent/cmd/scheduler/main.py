"""The command `compute-scheduler`: claim resources in placement, give them back, serve requests.

claim    find providers for some resources, claim them, print the consumer and where it landed
release  give back what a consumer holds
explain  show where a request fits, or why it does not
make-room
show which guests to move so that a request fits
select   read a request specification as JSON, claim, print the selections
reschedule, delete, attach, detach
go on with an instance that was claimed for
move     begin, confirm or revert the move of an instance to another host
serve    answer select_destinations on the message bus
list     show what consumers, a host or a project hold
top      show a running scheduler's work, live
status   ask a running scheduler what agents that are too old hold back
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from compute_agent import __version__, errors
from compute_agent.cmd import program
from compute_agent.cmd.program import JSON, Argument, argument
from compute_agent.cmd.scheduler.request_options import add_request_options, add_spec_options
from compute_agent.programs import configuration_files
from compute_agent.programs.exit_status import exit_table
from compute_agent.programs.whole_numbers import positive

PROGRAM: Final = "compute-scheduler"
_INSTANCE: Final = argument("instance", metavar="UUID", help="uuid of the instance")
_ALTERNATES: Final = argument(
    "--alternates", action="store_true", help="also list hosts to try later"
)
_AS_CLAIM: Final = "Give the request with the options of claim, or with --spec."

_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command given by `argv` and return its exit status."""
    files, others = configuration_files.split(PROGRAM, sys.argv[1:] if argv is None else argv)
    namespace = _parser().parse_args([*files, *others])
    return program.run(PROGRAM, namespace, _exit_status_of)


def _exit_status_of(namespace: argparse.Namespace, error: errors.ComputeAgentError) -> int:
    from compute_agent.scheduler.errors import NoValidHost

    if isinstance(error, errors.PlacementUnavailable):
        print(
            "Check that placement and keystone run, and that [placement]endpoint_override or the "
            "catalogue, and auth_url, have their addresses. What was not done can be repeated; a "
            "claim that may have been made is released with the next request.",
            file=sys.stderr,
        )
    if isinstance(error, NoValidHost):
        if namespace.json:
            print(json.dumps(error.as_dict(), indent=2))
        else:
            from compute_agent.cmd.scheduler.views import print_explanation

            print_explanation(error.causes, sys.stderr)
    return error.exit_status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Claims resources in placement before a host is contacted.",
        epilog=exit_table(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    configurations = (program.SCHEDULER, program.AGENT)
    configuration_files.add_options(parser, program.default_files(configurations))
    parser.add_argument(
        "--os-cloud",
        metavar="NAME",
        help="name of a cloud in clouds.yaml whose placement is used, not that of [placement]; "
        "serve does not take it",
    )
    parser.add_argument(
        "--debug", action="store_true", help="log everything, including each request"
    )
    # for commands without the option, whose output is JSON
    parser.set_defaults(json=True, configurations=configurations)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_placing(commands)
    _add_life_cycle(commands)
    _add_moves(commands)
    _add_running(commands)
    return parser


def _add(
    commands: _Commands, name: str, place: str, text: str, *arguments: Argument, **words: Any
) -> None:
    """Add a command.

    :param place: module of this folder, and function.
    :param words: further ones of its parser.
    """
    command = commands.add_parser(name, help=text, **words)
    command.set_defaults(function=f"compute_agent.cmd.scheduler.{place}")
    for add in arguments:
        add(command)


def _file(content: str) -> Argument:
    help_ = f"{content}; JSON; default: standard input"
    return argument("file", nargs="?", default="-", metavar="FILE", help=help_)


def _add_placing(commands: _Commands) -> None:
    _add(
        commands,
        "claim",
        "placing:claim",
        "claim resources",
        add_request_options,
        argument("--consumer", metavar="UUID", help="uuid of the consumer; default: a new one"),
        JSON,
        description="Claims resources on one host, and prints the consumer and the host. GROUP in "
        "an option is the suffix of a --group; an option without GROUP applies to --resources.",
    )
    _add(
        commands,
        "release",
        "placing:release",
        "release everything that a consumer holds",
        argument("consumer", metavar="CONSUMER", help="uuid of the consumer, as claim printed it"),
        JSON,
    )
    _add(
        commands,
        "select",
        "placing:select",
        "claim resources for a request specification",
        argument(
            "file",
            nargs="?",
            default="-",
            metavar="FILE",
            help="request specification as JSON; default: standard input",
        ),
        _ALTERNATES,
        argument(
            "--json", action="store_true", default=True, help="no effect: the output is always JSON"
        ),
    )
    _add(
        commands,
        "explain",
        "placing:explain",
        "show where a request fits, or why it does not",
        add_spec_options,
        JSON,
        description=f"Searches as claim does, and claims nothing. {_AS_CLAIM}",
    )
    _add(
        commands,
        "make-room",
        "make_room:make_room",
        "show which guests to move so that a request fits",
        add_spec_options,
        *(
            argument(option, type=int, default=default, metavar="N", help=text)
            for option, default, text in (
                ("--max-moves", 3, "most guests that move, up to 8; default: %(default)s"),
                ("--places", 1, "how many times the request is to fit; default: %(default)s"),
            )
        ),
        argument(
            "--time-limit",
            type=float,
            default=5,
            metavar="SECONDS",
            help="time of placement for a plan; default: %(default)s",
        ),
        argument(
            "--swap",
            action="store_true",
            help="all guests of a plan are stopped and moved together",
        ),
        *(
            argument(option, metavar=metavar, help=text, action="append", default=[])
            for option, metavar, text in (
                ("--keep", "UUID", "a guest that does not move (repeatable)"),
                ("--keep-project", "ID", "no guest of this project moves (repeatable)"),
            )
        ),
        argument(
            "--carry-out",
            metavar="FILE",
            type=Path,
            help="carry the plan out, and keep it in this file until it is done; a file that "
            "exists is gone on with",
        ),
        argument(
            "--mover",
            metavar="TEXT",
            help="command that moves a guest and waits for it; gets guest, source and destination, "
            "with --swap those of all guests at once",
        ),
        argument(
            "--at-once",
            type=positive,
            default=1,
            metavar="N",
            help="most guests that --mover moves at the same time; default: %(default)s",
        ),
        JSON,
        description="Without --carry-out it moves nothing; it never claims anything for the "
        f"request. {_AS_CLAIM} Needs placement-server.",
    )


def _add_life_cycle(commands: _Commands) -> None:
    _add(
        commands,
        "reschedule",
        "life_cycle:reschedule",
        "claim another host for an instance that could not be built",
        _INSTANCE,
        _file("request specification"),
        argument(
            "--failed",
            metavar="HOST",
            action="append",
            required=True,
            help="host that was tried before; may be given several times",
        ),
    )
    _add(
        commands,
        "delete",
        "life_cycle:delete",
        "release what a deleted instance holds",
        _INSTANCE,
        argument(
            "--migration",
            metavar="UUID",
            action="append",
            default=[],
            help="consumer of an unfinished move of the instance; may be given several times",
        ),
        argument(
            "--local",
            action="store_true",
            help="delete it although its host is down; refused if the agent of the host is alive",
        ),
    )
    before = argument(
        "--before",
        metavar="FILE",
        help="what the instance holds before the change, as JSON {PROVIDER: {CLASS: AMOUNT}}; with "
        "it the command can be repeated",
    )
    for name, text, content in (
        (
            "attach",
            "add a port or accelerator to an instance",
            "request specification of only the new groups",
        ),
        ("detach", "remove an attached port or accelerator from an instance", "output of attach"),
    ):
        _add(commands, name, f"life_cycle:{name}", text, _INSTANCE, _file(content), before)


def _add_moves(commands: _Commands) -> None:
    move = commands.add_parser("move", help="begin, confirm or revert the move of an instance")
    steps = move.add_subparsers(dest="step", required=True, metavar="STEP")
    _add(
        steps,
        "begin",
        "life_cycle:begin_move",
        "claim a destination and keep the source",
        argument(
            "kind",
            choices=["cold", "live", "evacuate"],
            help="kind of the move; cold is also for a resize",
        ),
        _INSTANCE,
        _file("request specification"),
        argument(
            "--migration",
            default="",
            metavar="UUID",
            help="consumer that holds the source during the move",
        ),
        argument(
            "--source",
            default="",
            metavar="UUID",
            help="root provider of the dead host; with it an evacuation can be repeated",
        ),
        _ALTERNATES,
    )
    for name, text in (
        ("finish", "release the source"),
        ("revert", "return to the source and release the destination"),
    ):
        _add(steps, name, f"life_cycle:{name}_move", text, _file("output of begin"))
    _add(
        steps,
        "returned",
        "life_cycle:record_returned_source",
        "release a source that was dead, after it is back",
        _INSTANCE,
        argument("source", metavar="ROOT", help="uuid of the root provider of the source"),
    )


def _add_running(commands: _Commands) -> None:
    _add(
        commands,
        "list",
        "holdings:list_holdings",
        "show what consumers, a host or a project hold",
        argument("consumers", nargs="*", metavar="CONSUMER", help="uuids of consumers"),
        argument("--host", metavar="HOST", help="all consumers of this host"),
        argument("--project", metavar="ID", help="sums of the consumers of this project"),
        JSON,
    )
    _add(
        commands,
        "top",
        "running:top",
        "show the work of a running scheduler, live",
        argument(
            "--url",
            metavar="URL",
            help="URL of the metrics; default: [compute_scheduler]metrics_bind of this host",
        ),
        argument(
            "--interval",
            type=_seconds,
            default=2.0,
            metavar="SECONDS",
            help="seconds between two readings; default: %(default)s",
        ),
        argument(
            "--count",
            type=positive,
            metavar="N",
            help="exit after N readings; default: never",
        ),
        description="Reads the metrics of compute-scheduler serve. Press q or Ctrl-C to exit.",
    )
    _add(
        commands,
        "serve",
        "serve:serve",
        "answer requests on the message bus",
        # set by `serve` for its worker processes
        argument("--worker", action="store_true", help=argparse.SUPPRESS),
    )
    _add(
        commands,
        "status",
        "running:status",
        "show the status of a running scheduler",
        argument(
            "what", choices=["upgrade"], help="show what agents of older versions still prevent"
        ),
        JSON,
    )


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0.1 <= float(text) <= 3600:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to 3600")


if __name__ == "__main__":
    sys.exit(main())
