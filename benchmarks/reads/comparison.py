"""Candidate searches and reads over HTTP, both servers in one run, against their bounds.

Both servers run on one PostgreSQL with the same number of workers, on data loaded through the API
of each. `--keep` keeps the databases of a run for the next one: loading 10,000 hosts into the
published package takes minutes.
"""

import contextlib
import dataclasses
import json
import statistics
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.floors.table import Row as Summary
from benchmarks.parts.postgresql import drop_database, postgresql
from benchmarks.parts.servers import SCHEMES, Server, create_database_of, ours, published_server
from benchmarks.parts.worlds import WORLDS, World
from benchmarks.reads.floors import FlooredRow, floors
from benchmarks.reads.measurement import Measurement, measure_rows
from benchmarks.reads.rows import MITIGATIONS, Row

WORKERS = 2
# The load of a data set is a row as well: at most a third of the published package's.
LOAD_RATIO = 3
# What a short run asks of each row: the least that any of them has is twice this.
QUICK_TIMES = 2
SECONDS = 4.0
QUICK_SECONDS = 0.5


@dataclass(frozen=True)
class Line:
    """A row as measured on both servers."""

    row: Row
    published_result: Measurement | None
    mitigated_result: Measurement | None
    ours: Measurement
    floor: FlooredRow | None

    def pace(self) -> float | None:
        """How many times slower than where the bounds were set the published package is here."""
        if (
            self.row.known_ms is None
            or self.published_result is None
            or self.published_result.failure
        ):
            return None
        return self.published_result.cpu_ms / self.row.known_ms

    def bound_ms(self, pace: float) -> float | None:
        """The strictest bound at this pace of the machine; None when the row has none."""
        bounds = [] if self.row.bound_ms is None else [self.row.bound_ms * pace]
        theirs = self.published_result
        if self.row.ratio and theirs and not theirs.failure:
            bounds.append(theirs.cpu_ms / self.row.ratio)
        return min(bounds, default=None)

    def mistake(self) -> str:
        """`FAILS` with what is wrong with the answer, or nothing."""
        if self.ours.failure:
            return f"FAILS: {self.ours.failure}"
        theirs = self.published_result
        if theirs and not theirs.failure and self.row.is_unlimited:
            candidate_counts = self.ours.candidates, theirs.candidates
            if candidate_counts[0] != candidate_counts[1]:
                return f"FAILS: {candidate_counts[0]} candidates, not {candidate_counts[1]}"
        return ""

    def verdict(self, pace: float) -> str:
        """`holds`, `FAILS` with the reason, or nothing where there is no bound."""
        if mistake := self.mistake():
            return mistake
        bound = self.bound_ms(pace)
        if bound is not None and self.ours.cpu_ms > bound:
            return "FAILS"
        over = self.floor.verdict(self.ours) if self.floor else ""
        return over or ("" if bound is None and not self.floor else "holds")


@dataclass(frozen=True)
class Load:
    """What loading a data set through the API cost, CPU milliseconds a request."""

    requests: int
    cpu_ms: float


class Bench:
    """The databases and servers of one run.

    :ivar loads: what was loaded, in this run or when it was, by data set and server.
    """

    def __init__(self, cluster: str, directory: Path, quick: bool) -> None:
        self.cluster = cluster
        self.directory = directory
        self.quick = quick
        self._seconds = QUICK_SECONDS if quick else SECONDS
        self.loads: dict[tuple[World, str], Load] = {}

    @contextlib.contextmanager
    def server(self, label: str, world: World, extra: str = "") -> Iterator[Server]:
        """One of the two servers with a data set, which is loaded when no run has done so."""
        database = world.database(label, self.quick)
        done_file = self.directory / f"{database}.loaded"
        if not done_file.exists():
            drop_database(self.cluster, database)
            create_database_of(self.cluster, label, database)
        connection = f"{SCHEMES[label]}:{self.cluster}/{database}"
        # A kept database may be that of an older version.
        is_old = done_file.exists()
        with (
            tempfile.TemporaryDirectory(dir=self.directory) as name,
            published_server(Path(name), connection, WORKERS, extra, synchronise=False)
            if label == "published"
            else ours(Path(name), connection, WORKERS, extra, synchronise=is_old) as server,
        ):
            if not done_file.exists():
                load = self._load(server, world)
                done_file.write_text(json.dumps(dataclasses.asdict(load)))
            self.loads[world, label] = Load(**json.loads(done_file.read_text()))
            yield server

    def _load(self, server: Server, world: World) -> Load:
        cpu = server.cpu_seconds()
        requests = world.load(server, self.quick)
        return Load(requests, 1000 * (server.cpu_seconds() - cpu) / requests)

    def measure(
        self, label: str, world: World, rows: list[Row], extra: str = ""
    ) -> list[Measurement]:
        """Measure rows of one data set on one server."""
        return measure_rows(lambda: self.server(label, world, extra), rows, self._seconds)

    def lines(self, world: World, rows: list[Row]) -> list[Line]:
        """Measure rows of one data set on both servers."""
        asked_rows = [row for row in rows if row.asks_published(self.quick)]
        theirs = dict(zip(asked_rows, self.measure("published", world, asked_rows), strict=True))
        wide = [row for row in rows if row.is_mitigated and not self.quick]
        mitigated_results = dict(
            zip(wide, self.measure("published", world, wide, MITIGATIONS), strict=True)
        )
        mine = self.measure("ours", world, rows)
        connection = f"{SCHEMES['ours']}:{self.cluster}/{world.database('ours', self.quick)}"
        floors_by_row = floors(connection, rows, mine, self._seconds)
        return [
            Line(row, theirs.get(row), mitigated_results.get(row), cost, floors_by_row.get(row))
            for row, cost in zip(rows, mine, strict=True)
        ]


def run(
    console: Console, title: str, rows: list[Row], *, quick: bool, keep: Path | None
) -> list[Summary]:
    """Measure rows, print the details of a whole run, and return what was found."""
    with contextlib.ExitStack() as stack:
        directory = keep or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-"))
        )
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o755)
        cluster = stack.enter_context(postgresql(directory / "postgresql"))
        bench = Bench(cluster, directory, quick)
        lines: list[Line] = []
        # In a short run data sets may be the same.
        worlds = {world.database("", quick): world for world in reversed(WORLDS)}
        for world in reversed(worlds.values()):
            wanted_rows = [row for row in rows if row.world.title(quick) == world.title(quick)]
            if wanted_rows:
                console.print(f"{world.title(quick)} ...", style="dim")
                lines += bench.lines(world, wanted_rows)
                for line in lines[-len(wanted_rows) :]:
                    console.print(
                        "  ".join(_cells(line, 1.0)[: -1 if quick else None]), style="dim"
                    )
    pace = pace_of(lines)
    if not quick:
        console.print(_table(title, lines, pace))
        console.print(
            f"Absolute bounds times {pace:.2f}: so much slower is the published package here "
            "than where they were set (median of the rows for which that is known)."
        )
    loaded_worlds = {line.row.world: None for line in lines}
    return [
        *(_summary(line, quick, pace) for line in lines),
        *_at_once(lines, quick),
        *_loads(bench, loaded_worlds),
    ]


def _summary(line: Line, quick: bool, pace: float) -> Summary:
    theirs, mine = line.published_result, line.ours
    is_answered = theirs is not None and not theirs.failure
    row = Summary(
        line.row.name,
        "CPU ms",
        mine.cpu_ms,
        floor=line.floor.ms if line.floor else None,
        published_value=theirs.cpu_ms if theirs and is_answered else None,
        data=line.row.world.title(quick),
        runs=f"best part of {mine.runs}" + (f", {theirs.runs} published" if theirs else ""),
    )
    if not quick or line.mistake():
        return dataclasses.replace(row, verdict=line.verdict(pace))
    floor = line.row.floor
    return dataclasses.replace(
        row,
        times=QUICK_TIMES if is_answered else None,
        most=floor.most if floor and line.floor and not floor.needs_data else None,
    )


def pace_of(lines: Iterable[Line]) -> float:
    """How many times slower than where the bounds were set this machine is, 1 if unknown."""
    known_paces = [pace for line in lines if (pace := line.pace()) is not None]
    return statistics.median(known_paces) if known_paces else 1.0


def _cpu(result: Measurement | None) -> str:
    if result is None:
        return "-"
    return result.failure or f"{result.cpu_ms:,.2f}"


def _table(title: str, lines: list[Line], pace: float) -> Table:
    table = Table(
        title=f"{title}: PostgreSQL, {WORKERS} worker processes each, one client; "
        "CPU and median latency in ms a request, resident memory of the server in MiB"
    )
    for heading in (
        *("request", "kB", "published CPU", "mitigated", "ours CPU", "encoded", "floor"),
        *("times, at most", "latency", "resident", "runs", "ratio", "at most", ""),
    ):
        table.add_column(heading, justify="left" if heading in ("request", "") else "right")
    world: World | None = None
    for line in lines:
        if line.row.world is not world:
            world = line.row.world
            table.add_section()
            table.add_row(f"[bold]{world.title(quick=False)}")
        table.add_row(*_cells(line, pace))
    return table


def _cells(line: Line, pace: float) -> list[str]:
    theirs, mine = line.published_result, line.ours
    both = theirs and not theirs.failure
    bound = line.bound_ms(pace)
    ratio = f"{theirs.cpu_ms / mine.cpu_ms:,.0f}x" if theirs and both and mine.cpu_ms else "-"
    return [
        f"  {line.row.name}",
        f"{len(mine.body) / 1000:,.0f}",
        _cpu(theirs),
        _cpu(line.mitigated_result),
        _cpu(mine),
        f"{mine.floor_ms():.2f}" if mine.body else "-",
        f"{line.floor.ms:.2f}" if line.floor else "-",
        f"{mine.cpu_ms / line.floor.ms:.1f}, {line.floor.most:g}" if line.floor else "-",
        f"{theirs.median_ms:,.1f} / {mine.median_ms:.1f}" if theirs and both
        else f"- / {mine.median_ms:.1f}",
        f"{theirs.resident_mib:.0f} / {mine.resident_mib:.0f}" if theirs and both
        else f"- / {mine.resident_mib:.0f}",
        f"{theirs.runs} / {mine.runs}" if theirs and both else f"- / {mine.runs}",
        ratio,
        "" if bound is None else f"{bound:.2f}",
        line.verdict(pace),
    ]  # fmt: skip


def _at_once(lines: list[Line], quick: bool) -> Iterator[Summary]:
    """Yield what ten clients get: of the order that the CPU promises."""
    for line in lines:
        theirs = line.published_result
        if not line.row.at_once or not theirs or theirs.failure or line.ours.failure:
            continue
        # The clients share the machine with what they measure.
        yield Summary(
            f"{line.row.name}, 10 clients at once",
            "ms",
            1000 / line.ours.at_once,
            published_value=1000 / theirs.at_once,
            times=theirs.cpu_ms / line.ours.cpu_ms / 3,
            data=line.row.world.title(quick),
            runs="1",
        )


def _loads(bench: Bench, worlds: Iterable[World]) -> Iterator[Summary]:
    """Yield what loading cost: at most a third."""
    for world in worlds:
        if (world, "published") not in bench.loads:
            # None of its rows is asked of the published package.
            continue
        theirs, mine = (bench.loads[world, label] for label in SCHEMES)
        yield Summary(
            "a request to load it",
            "CPU ms",
            mine.cpu_ms,
            published_value=theirs.cpu_ms,
            times=None if mine.requests < 500 else LOAD_RATIO,
            data=world.title(bench.quick),
            runs=f"mean of {mine.requests:,}",
        )
