"""The command `compute-agent dev`: placement-server, agent and scheduler on this machine.

Starts them on loopback, reports this very machine, or one that the package has as a capture, claims
through the scheduler and releases again, and prints the next commands. Stays up until Ctrl-C; with
--once it ends there.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from compute_agent.cmd import program
from compute_agent.cmd.dev.machine import FAKE, SHIPPED
from compute_agent.daemon import signals
from compute_agent.programs import whole_numbers
from compute_agent.programs.arguments import arguments

PLAIN_WIDTH = 120
"""Columns where the output is not a terminal: lines in a log or a pipe are not broken."""


def run(argv: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    given = argparse.Namespace(command="dev", function=_run)
    return program.run(
        "compute-agent", lambda: _parser().parse_args(argv, given), reader_may_leave=True
    )


def _run(namespace: argparse.Namespace) -> None:
    stop = threading.Event()
    with signals.handle({signal.SIGINT: stop.set, signal.SIGTERM: stop.set}):
        _session(namespace, stop)


def _session(namespace: argparse.Namespace, stop: threading.Event) -> None:
    from rich.console import Console

    from compute_agent import extras
    from compute_agent.cmd.dev.session import DevRun
    from compute_agent.cmd.dev.state_directory import StateDirectory, default_path
    from compute_agent.programs.printable import terminal

    machine = FAKE if namespace.fake else namespace.machine
    # every fleet has its own: the hosts of another one would be dead hosts here
    path = default_path(os.environ, machine, namespace.hosts)
    path = Path(namespace.state_dir) if namespace.state_dir else path
    state = StateDirectory(path.absolute())
    out = terminal(sys.stdout)
    console = Console(highlight=False, file=out)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(highlight=False, width=PLAIN_WIDTH, file=out)
    # logs of libraries do not belong in a demonstration
    logging.getLogger().addHandler(logging.NullHandler())
    extras.require("dev", "It", "granian", "oslo_messaging", "oslo_service", "sqlalchemy")
    DevRun(namespace, machine, state, console, stop).run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="compute-agent dev",
        description="Runs placement-server, compute-agent and compute-scheduler on this machine, "
        "and reports this machine. Needs only Python, and no privileges.",
        epilog="Everything listens on 127.0.0.1 only, without authentication.",
    )
    machines = parser.add_mutually_exclusive_group()
    machines.add_argument(
        "--machine",
        choices=SHIPPED,
        metavar="NAME",
        help="report a captured machine instead of this one: "
        + "; ".join(f"{name} ({what})" for name, what in SHIPPED.items()),
    )
    arguments("--fake  report an invented machine, with driver fake.FakeNumaDriver")(machines)
    arguments(
        """
        --hosts N (1)            number of agents, each with its own host; default: %(default)s, at
                                 most 16
        --once                   exit after the demonstration
        --port PORT (8778)       TCP port of the Placement API, 0 for any free one
        --state-dir DIR          directory of database, identity and logs; default:
                                 $XDG_STATE_HOME/compute-agent, or ~/.local/state/compute-agent;
                                 with --machine, --fake or --hosts a directory below it
        --interval SECONDS (10)  seconds between two passes of the agent
        --flat                   report everything on one provider instead of one per NUMA cell
        """,
        hosts=whole_numbers.whole(1, 16, "number of hosts"),
        interval=whole_numbers.whole(1, 86400, "number of seconds"),
    )(parser)
    return parser
