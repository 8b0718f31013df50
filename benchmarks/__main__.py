"""`python -m benchmarks [claims|reads|nested|bank] [--quick]`: both servers in one run."""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import bank, claims, reads
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


def show_reads(
    console: Console, title: str, run: Callable[[Server, bool], list[reads.Measured]], quick: bool
) -> None:
    rows: dict[str, list[reads.Measured]] = {"published": [], "ours": []}
    memory: dict[str, float] = {}

    def collect(server: Server) -> None:
        rows[server.label].extend(run(server, quick))
        memory[server.label] = server.resident_mib()

    against_both(collect)
    table = Table(title=f"{title}: PostgreSQL, {WORKERS} worker processes each, one client")
    for heading in ("scenario", "server", "median ms", "CPU ms/request", "bytes", "runs"):
        table.add_column(heading)
    for theirs, mine in zip(rows["published"], rows["ours"], strict=True):
        for row in (theirs, mine):
            table.add_row(
                row.scenario,
                row.server,
                f"{row.median_ms:.2f}",
                f"{row.cpu_ms:.2f}",
                f"{row.body_bytes:,}",
                str(row.runs),
            )
        table.add_row(
            "",
            "ratio",
            ratio(theirs.median_ms, mine.median_ms),
            ratio(theirs.cpu_ms, mine.cpu_ms),
        )
        table.add_section()
    console.print(table)
    console.print(
        "resident (PSS, all processes): "
        + ", ".join(f"{label} {mib:.0f} MiB" for label, mib in memory.items())
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument(
        "what",
        nargs="*",
        help="claims, reads or nested, all three when none is named; bank: is every claim exact, "
        "also when workers, servers and databases are killed",
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, to try it out")
    parser.add_argument("--seed", default="1", help="what the bank draws its schedule from")
    arguments = parser.parse_args()
    unknown = set(arguments.what) - {"claims", "reads", "nested", "bank"}
    if unknown:
        names = ", ".join(sorted(unknown))
        parser.error(f"unknown benchmark {names}: claims, reads, nested or bank")
    what = arguments.what or ["reads", "nested", "claims"]
    console = Console(width=140)
    if "reads" in what:
        show_reads(console, "Reads", reads.scenarios, arguments.quick)
    if "nested" in what:
        show_reads(console, "Nested hosts", reads.nested_scenarios, arguments.quick)
    if "claims" in what:
        show_claims(console, arguments.quick)
    if "bank" in what and not bank.show(console, arguments.seed, arguments.quick):
        sys.exit(1)


if __name__ == "__main__":
    main()
