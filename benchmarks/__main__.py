"""`python -m benchmarks [WHAT ...] [--quick]`: both servers in one run, against their bounds.

search: candidate searches; reads: requests by id; startup: import and idle workers; growth: up to
100,000 hosts; claims: claims at once; bank: is every claim exact, also when workers, servers and
databases are killed; agent: what one agent costs. All but bank and agent when none is named.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks import agent, bank, claims, growth, search, startup
from benchmarks.rows import READS, SEARCH, Row
from benchmarks.servers import Server, ours, postgresql, published

WORKERS = 2


def against_both(measure: Callable[[Server], None]) -> None:
    """Runs `measure` on each server in turn, each on its own database of one PostgreSQL."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        with postgresql(directory / "postgresql") as database:
            connection = f"postgresql+psycopg2:{database}/published"
            with published(directory / "published", connection, WORKERS) as server:
                measure(server)
            connection = f"postgresql+psycopg:{database}/ours"
            with ours(directory / "ours", connection, WORKERS) as server:
                measure(server)


def ratio(published_value: float, our_value: float) -> str:
    return f"{published_value / our_value:.1f}x" if our_value else "-"


def show_claims(console: Console, quick: bool) -> None:
    outcomes: dict[str, list[claims.Outcome]] = {"published": [], "ours": []}
    against_both(lambda server: outcomes[server.label].extend(claims.scenarios(server, quick)))
    table = Table(title=f"Claims: PostgreSQL, {WORKERS} worker processes each, one run of each row")
    for heading in (
        "scenario",
        "server",
        "claims/s",
        "conflicts",
        "p95 ms",
        "CPU ms/claim",
        "note",
    ):
        table.add_column(heading)
    for theirs, mine in zip(outcomes["published"], outcomes["ours"], strict=True):
        for row in (theirs, mine):
            table.add_row(
                row.scenario,
                row.server,
                f"{row.rate:.1f}",
                str(row.conflicts),
                f"{row.p95_ms:.1f}",
                f"{row.cpu_ms:.2f}",
                row.note,
            )
        table.add_row(
            "", "ratio", ratio(mine.rate, theirs.rate), "", "", ratio(theirs.cpu_ms, mine.cpu_ms)
        )
        table.add_section()
    console.print(table)


def asked(rows: Sequence[Row], wanted: Sequence[str], quick: bool) -> list[Row]:
    """The rows of which a name or a data set contains one of some texts; all without texts."""
    return [
        row
        for row in rows
        if not wanted or any(text in f"{row.world.title(quick)}, {row.name}" for text in wanted)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="benchmarks", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", nargs="*", choices=[*BENCHMARKS, []], metavar="WHAT")
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, to try it out")
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
    parser.add_argument("--seed", default="1", help="what the bank draws its schedule from")
    arguments = parser.parse_args()
    console = Console(width=165)
    held = True
    for what in arguments.what or DEFAULT:
        held &= BENCHMARKS[what](console, arguments)
    sys.exit(0 if held else 1)


def run_rows(
    console: Console, title: str, rows: Sequence[Row], arguments: argparse.Namespace
) -> bool:
    chosen = asked(rows, arguments.rows, arguments.quick)
    if not chosen:
        console.print(f"{title}: no row has {arguments.rows} in its name")
    return not chosen or search.run(
        console, title, chosen, quick=arguments.quick, keep=arguments.keep
    )


def run_claims(console: Console, arguments: argparse.Namespace) -> bool:
    show_claims(console, arguments.quick)
    return True


def run_growth(console: Console, arguments: argparse.Namespace) -> bool:
    growth.show(console, arguments.quick)
    return True


BENCHMARKS: Final[dict[str, Callable[[Console, argparse.Namespace], bool]]] = {
    "search": lambda console, arguments: run_rows(console, "Searches", SEARCH, arguments),
    "reads": lambda console, arguments: run_rows(console, "Reads", READS, arguments),
    "startup": lambda console, arguments: startup.show(console, arguments.quick),
    "growth": run_growth,
    "claims": run_claims,
    "bank": lambda console, arguments: bank.show(console, arguments.seed, arguments.quick),
    "agent": lambda console, arguments: agent.show(console, arguments.quick),
}
DEFAULT: Final = ("search", "reads", "startup", "growth", "claims")


if __name__ == "__main__":
    main()
