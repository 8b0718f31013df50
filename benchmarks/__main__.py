"""`python -m benchmarks [WHAT ...] [--quick]`: both servers in one run, against their bounds.

search: candidate searches; reads: requests by id; requests: both; startup: workers and agents;
claims: claims at once; agent: what one agent costs; plans: what a guest gets of a host; scheduling:
claims through running schedulers, from a call on the bus to the claim; growth: such a claim by
hosts, consumers and schedulers; month: what is refused in a month, also where room is made at
night; room: which guests to move so that a request fits, and searches meanwhile; floors: claims and
many hosts beside what the same costs when only the unavoidable is done.

The rows of search, reads, startup, claims, floors and plans, which are run when none is named, and
of scheduling and growth are shown in one table at the end. With --quick that takes some three
minutes: fewer rows, and little data. What the load of the machine may have turned is left open
there ("needs a quiet machine"): times of the clock, absolute CPU, and ratios up to twice their
bound. Counts and memory are judged as ever.

The exit status is 1 where a row fails or could not be measured, otherwise 0.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from benchmarks.agent import events
from benchmarks.claims import rates
from benchmarks.floors import claims as claim_floors
from benchmarks.floors import hosts, pgbench, starts, table
from benchmarks.in_process import make_room, month, plans
from benchmarks.reads import comparison
from benchmarks.reads.rows import READS, SEARCH, Row
from benchmarks.scheduler import bus_claims


def selected_rows(rows: Sequence[Row], wanted_texts: Sequence[str], quick: bool) -> list[Row]:
    """The rows of which a name or a data set contains one of some texts; all without texts."""
    return [
        row
        for row in rows
        if not wanted_texts
        or any(text in f"{row.world.title(quick)}, {row.name}" for text in wanted_texts)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="benchmarks", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", nargs="*", choices=[*TABLED, *BENCHMARKS, []], metavar="WHAT")
    parser.add_argument("--quick", action="store_true", help="few rows and little data")
    parser.add_argument(
        "--rows",
        action="append",
        default=[],
        metavar="TEXT",
        help="search and reads: only rows with this in their data set or name; may be repeated",
    )
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="search and reads: keep the loaded databases there for the next run",
    )
    parser.add_argument(
        "--plot", type=Path, metavar="PATH", help="SVG: month a file, growth a folder"
    )
    arguments = parser.parse_args()
    rows = [*SEARCH, *READS]
    if not selected_rows(rows, arguments.rows, arguments.quick):
        names = "\n".join(
            sorted(f"  {row.world.title(arguments.quick)}, {row.name}" for row in rows)
        )
        parser.error(f"no row has {' or '.join(arguments.rows)} in its name; there are\n{names}")
    console = Console(width=190)
    # What was begun is ended: servers, databases, directories.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    holds, found_rows = True, []
    for what in _parts(arguments.what or DEFAULT):
        began, cpu = time.monotonic(), sum(os.times()[:4])
        if what in TABLED:
            found_rows += _rows(console, what, arguments)
        else:
            holds &= BENCHMARKS[what](console, arguments)
        # Without that of the database servers, which are not children.
        console.print(
            f"{what}: {time.monotonic() - began:.0f} s, {sum(os.times()[:4]) - cpu:.0f} s of CPU, "
            f"load {os.getloadavg()[0]:.0f}",
            style="dim",
        )
    if found_rows:
        holds &= table.show(console, "Ours, the published package, and the floor", found_rows)
    sys.exit(0 if holds else 1)


def _parts(names: Sequence[str]) -> list[str]:
    """Return what is to be run; searches and reads together, as they have the same servers."""
    if set(names) >= {"search", "reads"}:
        return [REQUESTS, *(name for name in names if name not in ("search", "reads"))]
    return list(names)


def _rows(console: Console, what: str, arguments: argparse.Namespace) -> list[table.Row]:
    """Measure what has a table; an error is a row that fails, and ends this part only."""
    rows: list[table.Row] = []
    try:
        table_rows = TABLED[what](console, arguments)
        rows.extend(row.for_short_run() if arguments.quick else row for row in table_rows)
    except Exception as error:  # noqa: BLE001 - the others are measured
        console.print_exception()
        reason = f"{table.FAILS}: {type(error).__name__}: {error}"[:200]
        rows.append(table.Row(f"{what}: ended early", "", 0.0, verdict=reason))
    return rows


def run_rows(
    console: Console, title: str, rows: Sequence[Row], arguments: argparse.Namespace
) -> list[table.Row]:
    chosen_rows = selected_rows(rows, arguments.rows, arguments.quick)
    if arguments.quick and not arguments.rows:
        chosen_rows = [row for row in chosen_rows if row.quick]
    if not chosen_rows:
        console.print(f"{title}: no row has {arguments.rows} in its name")
        return []
    return comparison.run(console, title, chosen_rows, quick=arguments.quick, keep=arguments.keep)


def run_floors(console: Console, arguments: argparse.Namespace) -> Iterator[table.Row]:
    for module in (claim_floors, pgbench, hosts):
        for row in module.rows(quick=arguments.quick):
            console.print("  ".join(filter(None, row.cells())), style="dim")
            yield row


REQUESTS: Final = "requests"
TABLED: Final[dict[str, Callable[[Console, argparse.Namespace], Iterable[table.Row]]]] = {
    REQUESTS: lambda console, arguments: run_rows(
        console, "Searches and reads", [*SEARCH, *READS], arguments
    ),
    "search": lambda console, arguments: run_rows(console, "Searches", SEARCH, arguments),
    "reads": lambda console, arguments: run_rows(console, "Reads", READS, arguments),
    "startup": lambda _console, arguments: starts.rows(quick=arguments.quick),
    "claims": lambda console, arguments: rates.show(console, arguments.quick),
    "floors": run_floors,
    "plans": lambda _console, arguments: plans.rows(quick=arguments.quick),
    "scheduling": lambda _console, arguments: bus_claims.rows(quick=arguments.quick),
    "growth": lambda _console, arguments: bus_claims.growth(
        quick=arguments.quick, plots=arguments.plot
    ),
}
"""Benchmarks whose rows are shown in one table."""

BENCHMARKS: Final[dict[str, Callable[[Console, argparse.Namespace], bool]]] = {
    "agent": lambda console, arguments: events.show(console, arguments.quick),
    "month": lambda console, arguments: month.show(console, arguments.quick, arguments.plot),
    "room": lambda console, arguments: make_room.run(console, arguments.quick),
}
DEFAULT: Final = ("search", "reads", "startup", "claims", "floors", "plans")


if __name__ == "__main__":
    main()
