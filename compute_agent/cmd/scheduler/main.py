"""The command `compute-scheduler`: claim resources in placement, release them, serve requests."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from compute_agent import __version__, errors
from compute_agent.cmd import program
from compute_agent.cmd.output import print_json
from compute_agent.cmd.scheduler.request_options import REQUEST_OPTIONS, SPEC_OPTION
from compute_agent.cmd.shared_options import JSON
from compute_agent.programs import configuration_files
from compute_agent.programs.arguments import Argument, arguments
from compute_agent.programs.exit_status import exit_table

PROGRAM: Final = "compute-scheduler"
_INSTANCE: Final = "instance UUID  uuid of the instance"
_ALTERNATES: Final = "--alternates  also list hosts to try later"
_AS_CLAIM: Final = "Give the request with the options of claim, or with --spec."

_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command given by `argv` and return its exit status."""
    files, others = configuration_files.split(PROGRAM, sys.argv[1:] if argv is None else argv)
    return program.run(PROGRAM, lambda: _parser().parse_args([*files, *others]), _exit_status_of)


def _exit_status_of(namespace: argparse.Namespace, error: errors.ComputeAgentError) -> int:
    from compute_agent.scheduler.errors import NoValidHost

    if isinstance(error, errors.PlacementUnavailable):
        print(
            "What was not done can be repeated; a claim that may have been made is released with "
            "the next request.",
            file=sys.stderr,
        )
    if isinstance(error, NoValidHost):
        if namespace.json:
            print_json(error.as_dict())
        else:
            from compute_agent.cmd.scheduler.views import explanation_lines

            print(*explanation_lines(error.causes), sep="\n", file=sys.stderr)
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
    configuration_files.options(program.default_files(configurations))(parser)
    arguments(
        """
        --os-cloud NAME  name of a cloud in clouds.yaml whose placement is used, not that of
                         [placement]; serve does not take it
        --debug          log everything, including each request
        """
    )(parser)
    # for commands without the option, whose output is JSON
    parser.set_defaults(json=True, configurations=configurations)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_placing(commands)
    _add_life_cycle(commands)
    _add_moves(commands)
    _add_running(commands)
    return parser


def _add(
    commands: _Commands, name: str, place: str, text: str, *declared: str | Argument, **words: Any
) -> argparse.ArgumentParser:
    """Add a command.

    :param place: module of this folder, and function.
    """
    function = f"compute_agent.cmd.scheduler.{place}"
    return program.add_command(commands, name, function, text, *declared, **words)


def _file(content: str) -> str:
    return f"file FILE ? (-)  {content}; JSON; default: standard input"


def _add_placing(commands: _Commands) -> None:
    add = partial(_add, commands)
    add(
        "claim",
        "life_cycle:claim",
        "claim resources",
        REQUEST_OPTIONS,
        "--consumer UUID  uuid of the consumer; default: a new one",
        JSON,
        description="Claims resources on one host, and prints the consumer and the host. GROUP in "
        "an option is the suffix of a --group; an option without GROUP applies to --resources.",
    )
    add(
        "release",
        "life_cycle:release",
        "release everything that a consumer holds",
        "consumer CONSUMER  uuid of the consumer, as claim printed it",
        JSON,
    )
    add(
        "select",
        "life_cycle:select",
        "claim resources for a request specification",
        _file("request specification"),
        _ALTERNATES,
        "--json  no effect: the output is always JSON",
    ).set_defaults(json=True)
    add(
        "explain",
        "life_cycle:explain",
        "show where a request fits, or why it does not",
        REQUEST_OPTIONS,
        SPEC_OPTION,
        JSON,
        description=f"Searches as claim does, and claims nothing. {_AS_CLAIM}",
    )
    add(
        "make-room",
        "make_room:make_room",
        "show which guests to move so that a request fits",
        REQUEST_OPTIONS,
        SPEC_OPTION,
        arguments(
            """
            --max-moves N (3)         most guests that move, up to 8
            --places N (1)            how many times the request is to fit
            --time-limit SECONDS (5)  time of placement for a plan
            --swap                    all guests of a plan are stopped and moved together
            --keep UUID *             a guest that does not move (repeatable)
            --keep-project ID *       no guest of this project moves (repeatable)
            --carry-out FILE          carry the plan out, and keep it in this file until it is done;
                                      a file that exists is gone on with
            --mover TEXT              command that moves a guest and waits for it; gets guest,
                                      source and destination, with --swap those of all guests at
                                      once
            --at-once N (1)           most guests that --mover moves at the same time
            """,
            max_moves=int,
            places=int,
            time_limit=float,
            carry_out=Path,
        ),
        JSON,
        description="Without --carry-out it moves nothing; it never claims anything for the "
        f"request. {_AS_CLAIM} Needs placement-server.",
    )


def _add_life_cycle(commands: _Commands) -> None:
    add = partial(_add, commands)
    add(
        "reschedule",
        "life_cycle:reschedule",
        "claim another host for an instance that could not be built",
        _INSTANCE,
        _file("request specification"),
        "--failed HOST +  host that was tried before; may be given several times",
    )
    add(
        "delete",
        "life_cycle:delete",
        "release what a deleted instance holds",
        _INSTANCE,
        """
        --migration UUID *  consumer of an unfinished move of the instance; may be given several
                            times
        --local             delete it although its host is down; refused if the agent of the host is
                            alive
        """,
    )
    before = """
        --before FILE  what the instance holds before the change, as JSON {PROVIDER: {CLASS:
                       AMOUNT}}; with it the command can be repeated
        """
    for name, text, content in (
        (
            "attach",
            "add a port or accelerator to an instance",
            "request specification of only the new groups",
        ),
        ("detach", "remove an attached port or accelerator from an instance", "output of attach"),
    ):
        add(name, f"life_cycle:{name}", text, _INSTANCE, _file(content), before)


def _add_moves(commands: _Commands) -> None:
    move = commands.add_parser("move", help="begin, confirm or revert the move of an instance")
    steps = move.add_subparsers(dest="step", required=True, metavar="STEP")
    add = partial(_add, steps)
    add(
        "begin",
        "life_cycle:begin_move",
        "claim a destination and keep the source",
        "kind {cold,live,evacuate}  kind of the move; cold is also for a resize",
        _INSTANCE,
        _file("request specification"),
        """
        --migration UUID ()  consumer that holds the source during the move
        --source UUID ()     root provider of the dead host; with it an evacuation can be repeated
        """,
        _ALTERNATES,
    )
    for name, text in (
        ("finish", "release the source"),
        ("revert", "return to the source and release the destination"),
    ):
        add(name, f"life_cycle:{name}_move", text, _file("output of begin"))
    add(
        "returned",
        "life_cycle:record_returned_source",
        "release a source that was dead, after it is back",
        _INSTANCE,
        "source ROOT  uuid of the root provider of the source",
    )


def _add_running(commands: _Commands) -> None:
    add = partial(_add, commands)
    add(
        "list",
        "holdings:list_holdings",
        "show what consumers, a host or a project hold",
        """
        consumers CONSUMER *  uuids of consumers
        --host HOST           all consumers of this host
        --project ID          sums of the consumers of this project
        """,
        JSON,
    )
    add(
        "top",
        "running:top",
        "show the work of a running scheduler, live",
        arguments(
            """
            --url URL                 URL of the metrics; default: [compute_scheduler]metrics_bind
                                      of this host
            --interval SECONDS (2.0)  seconds between two readings
            --count N                 exit after N readings; default: never
            """,
            interval=_seconds,
        ),
        description="Reads the metrics of compute-scheduler serve. Press q or Ctrl-C to exit.",
    )
    add(
        "serve",
        "serve:serve",
        "answer requests on the message bus",
        # set by `serve` for its worker processes
        lambda serve: serve.add_argument("--worker", action="store_true", help=argparse.SUPPRESS),
    )
    add(
        "status",
        "running:status",
        "show the status of a running scheduler",
        """
        what {upgrade}  show what agents of older versions still prevent, and a reload that failed
        """,
        JSON,
    )


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0.1 <= float(text) <= 3600:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to 3600")


if __name__ == "__main__":
    sys.exit(main())
