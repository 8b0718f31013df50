"""A year of a fleet in small, of which nothing may grow that should not.

python -m benchmarks.year --database postgresql
python -m benchmarks.year --scale 0.05 --no-bus

A whole year: 10,000 passes of 50 agents, of which one is a process of its own; 250,000 claims and
as many releases, searches and moves among them; 500 hosts that come and go, each with a trait, a
class and an aggregate of its own; reshapes with the claims on what moves; claims through a
scheduler. All processes are restarted after 1/8, 1/4 and half of the time, and `placement-manage
prune` runs in each of the periods. Values are measured after each period; of those of the later
part the slope is printed, by least squares and for a whole year, beside its bound. Ends with 1 when
one is exceeded, or when `placement-manage audit` finds something.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.year.series import Year
from benchmarks.year.year import Fleet, Plan
from tests.fixtures.private_databases import KINDS, private_database
from tests.fixtures.rabbitmq import RabbitMq, rabbitmq_missing


def main() -> int:
    """Run a year and print its slopes."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.year",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--scale", type=float, default=1.0, help="the part of a whole year")
    parser.add_argument("--periods", type=int, default=32, help="samples; a multiple of 8")
    parser.add_argument("--database", choices=KINDS, default="postgresql")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--no-bus", action="store_true", help="without a scheduler and its broker")
    options = parser.parse_args()
    console = Console(width=120)
    missing = rabbitmq_missing()
    if missing and not options.no_bus:
        parser.error(f"{missing}; --no-bus does without")
    eighth = options.periods // 8
    plan = Plan(
        options.scale,
        options.periods,
        (eighth, 2 * eighth, 4 * eighth),
        kept_seconds=max(5.0, 600 * min(1.0, options.scale / 4)),
        seed=options.seed,
    )
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="year-")))
        directory.chmod(0o755)
        database = stack.enter_context(private_database(options.database, directory))
        broker = None
        if not options.no_bus:
            (directory / "broker").mkdir()
            broker = RabbitMq(directory / "broker")
            stack.callback(broker.stop)
            broker.start()
        fleet = Fleet(directory, database, plan, broker)
        began = time.monotonic()
        fleet.live(console.print)
        console.print(f"{plan.scale:g} of a year in {time.monotonic() - began:.0f} s")
        console.print(table_of(fleet.year))
        try:
            console.print(f"placement-manage audit: {fleet.manage('audit').strip()}")
        except subprocess.CalledProcessError as error:
            console.print(f"placement-manage audit ended with {error.returncode}: {error.stdout}")
            return 1
    broken = fleet.year.broken()
    console.print(f"GROWS: {', '.join(broken)}" if broken else "nothing grows")
    return bool(broken)


def table_of(year: Year) -> Table:
    """The slopes beside their bounds."""
    table = Table(title="After 63 %: mean, growth in a year by least squares, bound")
    for heading in ("value", "first", "last", "mean", "growth", "bound", ""):
        table.add_column(heading, justify="left" if heading == "value" else "right")
    for series in year.judged():
        first, last = series.judged[0][1], series.judged[-1][1]
        numbers = (first, last, series.mean, series.growth, series.bound.of(series.mean))
        cells = [f"{number:,.2f}" for number in numbers]
        table.add_row(series.name, *cells, "holds" if series.holds else "GROWS")
    return table


if __name__ == "__main__":
    sys.exit(main())
