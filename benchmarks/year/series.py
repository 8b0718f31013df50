"""Values over a year, and how much they grow."""

from __future__ import annotations

import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

WARM_AFTER: Final = 0.26
"""The part of the time since the last restart after which growth counts: all is warm by then."""


@dataclass(frozen=True)
class Bound:
    """How much a value may grow in a year: the larger of an amount and a share of it."""

    amount: float = 0.0
    share: float = 0.0

    def of(self, value: float) -> float:
        return max(self.amount, self.share * abs(value))


@dataclass(frozen=True)
class Series:
    """One value at several times of the year.

    :ivar points: the time, from 0 to 1, and the value.
    """

    name: str
    bound: Bound
    points: Sequence[tuple[float, float]]

    @property
    def growth(self) -> float:
        """What is added in a year, by least squares."""
        times, values = zip(*self.points, strict=True)
        return statistics.linear_regression(times, values).slope

    @property
    def mean(self) -> float:
        return statistics.fmean(value for _, value in self.points)

    @property
    def holds(self) -> bool:
        return self.growth <= self.bound.of(self.mean)


@dataclass(frozen=True)
class Sample:
    """What was measured after a period.

    :ivar time: the part of the year that is over.
    :ivar season: restarts before it.
    :ivar seconds: how long the period took.
    :ivar requests: sent by clients and simulated agents in the period.
    :ivar cpu: CPU seconds in the period, by part.
    :ivar values: what must not grow, by name.
    """

    time: float
    season: int
    seconds: float
    requests: int
    cpu: Mapping[str, float]
    values: Mapping[str, float]


@dataclass
class Year:
    """All samples.

    :ivar bounds: of the values whose names match, the first that does.
    """

    bounds: Sequence[tuple[re.Pattern[str], Bound]]
    samples: list[Sample] = field(default_factory=list)

    def judged_series(self) -> Iterator[Series]:
        """The series of warm processes, where they are long enough for a slope."""
        points: dict[str, list[tuple[float, float]]] = {}
        for sample in self._warm():
            for name, value in sample.values.items():
                points.setdefault(name, []).append((sample.time, value))
        for name, late in points.items():
            if len(late) > 2:
                yield Series(name, self._bound_of(name), late)

    def broken_series(self) -> list[str]:
        """The series that grow more than they may."""
        return [series.name for series in self.judged_series() if not series.holds]

    def cpu(self) -> Mapping[str, float]:
        """CPU seconds so far, by part."""
        parts: dict[str, float] = defaultdict(float)
        for sample in self.samples:
            for name, seconds in sample.cpu.items():
                parts[name] += seconds
        return parts

    def _warm(self) -> Iterable[Sample]:
        if not self.samples:
            return []
        last = self.samples[-1]
        began = max((s.time for s in self.samples if s.season < last.season), default=0.0)
        warm = began + WARM_AFTER * (last.time - began)
        return [sample for sample in self.samples if sample.time > warm]

    def _bound_of(self, name: str) -> Bound:
        return next(bound for pattern, bound in self.bounds if pattern.search(name))


def append(path: Path, sample: Sample) -> None:
    """Add a sample to the file of a year, as a line of JSON."""
    with path.open("a") as stream:
        stream.write(json.dumps(asdict(sample)) + "\n")


def read(path: Path, bounds: Sequence[tuple[re.Pattern[str], Bound]]) -> Year:
    """Return the year of a file that :func:`append` wrote."""
    return Year(bounds, [Sample(**json.loads(line)) for line in path.read_text().splitlines()])
