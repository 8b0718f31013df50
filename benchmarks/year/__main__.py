"""A year of a fleet in small, of which nothing may grow that should not.

python -m benchmarks.year --database postgresql
python -m benchmarks.year --scale 0.05 --no-bus
python -m benchmarks.year --read year.jsonl

A whole year: 10,000 passes of 50 agents, of which one is a process of its own; 250,000 claims and
as many releases, searches and moves among them; 500 hosts that come and go, each with a trait, a
class and an aggregate of its own; reshapes with the claims on what moves; claims through a
scheduler. All processes are restarted after 1/8, 1/4 and half of the time, and `placement-manage
prune` runs in each of the periods. Values are measured after each period; of those of the later
part the slope is printed, by least squares and for a whole year, beside its bound. Ends with 1 when
one is exceeded, or when `placement-manage audit` finds something.

The samples are written to a file as they are taken. A year that SIGINT or SIGTERM ends stops its
processes, prints the slopes since its last restart, and ends with 1; --read prints those of a file.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import traceback
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.table import Table

from benchmarks.year import series
from benchmarks.year.measures import BOUNDS
from benchmarks.year.series import Sample, Year
from benchmarks.year.year import Fleet, Plan
from tests.fixtures.private_databases import KINDS, private_database
from tests.fixtures.rabbitmq import RabbitMq, rabbitmq_missing


class Interrupts:
    """SIGINT and SIGTERM: the first raises KeyboardInterrupt, but not before everything has started
    that would be left behind."""

    def __init__(self) -> None:
        self._may_raise = self._came = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)

    def allow(self) -> None:
        """Raise from now on, and for what has come so far."""
        self._may_raise = True
        if self._came:
            raise KeyboardInterrupt

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        is_first, self._came = not self._came, True
        if is_first and self._may_raise:
            raise KeyboardInterrupt


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
    parser.add_argument(
        "--naptime",
        type=int,
        default=1,
        metavar="SECONDS",
        help="autovacuum_naptime of PostgreSQL, by default its least: a year here is minutes",
    )
    parser.add_argument(
        "--samples", type=Path, default=Path("year.jsonl"), help="the file to write"
    )
    parser.add_argument("--read", type=Path, metavar="FILE", help="only print the slopes of a file")
    options = parser.parse_args()
    console = Console(width=120)
    if options.read:
        return show(console, series.read(options.read, BOUNDS))
    missing_reason = rabbitmq_missing()
    if missing_reason and not options.no_bus:
        parser.error(f"{missing_reason}; --no-bus does without")
    eighth = options.periods // 8
    plan = Plan(
        options.scale,
        options.periods,
        (eighth, 2 * eighth, 4 * eighth),
        # shorter than a period, so that each prune deletes what the one before has marked
        kept_seconds=20.0,
        naptime=options.naptime,
        seed=options.seed,
    )
    options.samples.write_text("")

    def on_sample(sample: Sample) -> None:
        series.append(options.samples, sample)
        print(line_of(sample), flush=True)

    interrupts = Interrupts()
    has_failed = False
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
        fleet = Fleet(directory, database, plan, broker, on_sample)
        try:
            interrupts.allow()
            fleet.live()
            console.print(f"placement-manage audit: {fleet.manage('audit').strip()}")
        except subprocess.CalledProcessError as error:
            has_failed = True
            console.print(f"{error}: {error.stdout}{error.stderr}")
        except (Exception, KeyboardInterrupt):  # noqa: BLE001 - what was measured before is shown
            has_failed = True
            traceback.print_exc()
        # while the processes of the last part end
        grows = show(console, fleet.year)
    return int(has_failed or grows)


def line_of(sample: Sample) -> str:
    """What is told of a period while the year goes on."""
    values = sample.values
    cpu = ", ".join(f"{name} {seconds:.1f}" for name, seconds in sample.cpu.items())
    return (
        f"{sample.time:4.0%} in {sample.seconds:.0f} s: {sample.requests} requests, "
        f"CPU s: {cpu}; server {values['server: MiB']:.1f} MiB, "
        f"agent {values['agent: MiB']:.1f} MiB; {values['rows of changes']:.0f} changes, "
        f"{values['rows of consumers']:.0f} consumers"
    )


def show(console: Console, year: Year) -> int:
    """Print what a year cost and its slopes beside their bounds; 1 where one is exceeded."""
    if not year.samples:
        console.print("no samples")
        return 1
    seconds = sum(sample.seconds for sample in year.samples)
    request_count = sum(sample.requests for sample in year.samples)
    console.print(
        f"{year.samples[-1].time:.0%} in {seconds:.0f} s without starts: {request_count} requests"
    )
    for name, cpu_seconds in year.cpu().items():
        console.print(
            f"CPU of {name}: {cpu_seconds:.0f} s, {1000 * cpu_seconds / request_count:.2f} ms a "
            "request"
        )
    table = Table(title="Warm since the last restart: mean, growth in a year, bound")
    for heading in ("value", "first", "last", "mean", "growth", "bound", ""):
        table.add_column(heading, justify="left" if heading == "value" else "right")
    for judged_series in year.judged_series():
        first, last = judged_series.points[0][1], judged_series.points[-1][1]
        numbers = (
            first,
            last,
            judged_series.mean,
            judged_series.growth,
            judged_series.bound.of(judged_series.mean),
        )
        cells = [f"{number:,.2f}" for number in numbers]
        table.add_row(judged_series.name, *cells, "holds" if judged_series.holds else "GROWS")
    console.print(table)
    broken_series = year.broken_series()
    console.print(f"GROWS: {', '.join(broken_series)}" if broken_series else "nothing grows")
    return bool(broken_series)


if __name__ == "__main__":
    sys.exit(main())
