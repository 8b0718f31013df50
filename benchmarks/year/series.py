"""Values over a year, and how much they grow."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

JUDGED_FROM: Final = 0.63
"""The part of the year after which growth counts: after the last restart everything is warm."""


@dataclass(frozen=True)
class Bound:
    """How much a value may grow in a year: the larger of an amount and a share of it."""

    amount: float = 0.0
    share: float = 0.0

    def of(self, value: float) -> float:
        return max(self.amount, self.share * abs(value))


@dataclass
class Series:
    """One value at several times of the year.

    :ivar points: the time, from 0 to 1, and the value.
    """

    name: str
    bound: Bound
    points: list[tuple[float, float]] = field(default_factory=list)

    @property
    def judged(self) -> Sequence[tuple[float, float]]:
        return [point for point in self.points if point[0] > JUDGED_FROM]

    @property
    def growth(self) -> float:
        """What is added in a year, by the least squares of the second half."""
        times, values = zip(*self.judged, strict=True)
        return statistics.linear_regression(times, values).slope

    @property
    def mean(self) -> float:
        return statistics.fmean(value for _, value in self.judged)

    @property
    def holds(self) -> bool:
        return self.growth <= self.bound.of(self.mean)


class Year:
    """All series."""

    def __init__(self) -> None:
        self.series: dict[str, Series] = {}

    def add(self, time: float, name: str, value: float, bound: Bound) -> None:
        self.series.setdefault(name, Series(name, bound)).points.append((time, value))

    def judged(self) -> Iterator[Series]:
        """Those with values enough for a slope."""
        return (series for series in self.series.values() if len(series.judged) > 2)

    def broken(self) -> list[str]:
        """The series that grow more than they may."""
        return [series.name for series in self.judged() if not series.holds]
