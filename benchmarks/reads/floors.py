"""Floors: what the same answer costs when nothing but the unavoidable is done.

They are measured in the same run as the rows that they belong to, in server CPU.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.parts.postgresql import free_port
from benchmarks.parts.servers import Server, running_server
from benchmarks.reads.measurement import Measurement, measure
from benchmarks.reads.rows import Row, get


@dataclass(frozen=True)
class FlooredRow:
    """A row's floor as measured.

    :ivar ms: CPU milliseconds of a request.
    :ivar most: how many times that the row may cost.
    """

    ms: float
    most: float

    def verdict(self, ours: Measurement) -> str:
        """`FAILS` with the ratio, or nothing."""
        ratio = ours.cpu_ms / self.ms
        return f"FAILS: {ratio:.1f}x its floor" if ratio > self.most else ""


def floors(
    database: str, rows: Sequence[Row], results: Sequence[Measurement], seconds: float
) -> dict[Row, FlooredRow]:
    """Measure the floors of rows that have one and were answered.

    :param database: the URL of the one that they were asked of.
    """
    asked_rows = [
        (row, ours)
        for row, ours in zip(rows, results, strict=True)
        if row.floor is not None and ours.body and not ours.failure
    ]
    with tempfile.TemporaryDirectory(prefix="floor-") as name:
        directory = Path(name)
        bodies = directory / "bodies"
        bodies.mkdir()
        for number, (_, ours) in enumerate(asked_rows):
            (bodies / str(number)).write_bytes(ours.body)
        found_floors: dict[Row, FlooredRow] = {}
        if asked_rows:
            with floor_server(database, bodies, directory / "log") as server:
                for number, (row, ours) in enumerate(asked_rows):
                    assert row.floor is not None
                    ms = 0.0
                    if row.floor.is_served:
                        same = Row(row.name, row.world, get(f"/{number}"))
                        ms += measure(server, same, seconds).cpu_ms
                    if row.floor.is_encoded:
                        ms += ours.floor_ms()
                    found_floors[row] = FlooredRow(ms, row.floor.most)
    return found_floors


@contextlib.contextmanager
def floor_server(database: str, bodies: Path, log: Path) -> Iterator[Server]:
    """The server of `benchmarks.reads.floor_server` for the files of a directory."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.reads.floor_server"]
    command += [database, str(bodies), str(port)]
    with running_server("floor", command, dict(os.environ), port, log) as server:
        yield server
