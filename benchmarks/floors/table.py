"""Rows of costs beside what they are compared with, and whether their bounds hold."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from rich.console import Console
from rich.table import Table

HOLDS: Final = "holds"
FAILS: Final = "FAILS"
UNDECIDED: Final = "needs a quiet machine"
"""The verdict of a short run on what the load of the machine may have turned."""

FAR: Final = 2.0
"""A ratio that a short run finds so many times beyond its bound is hardly due to the load."""

_COUNTED: Final = ("", "KB", "MiB", "GiB", "wakeups/min", "requests")
"""Units of what other work on the machine does not change."""


@dataclass(frozen=True)
class Row:
    """A cost beside what it is compared with.

    :ivar floor: the unavoidable part, measured in the same run; None for an absolute bound.
    :ivar most: how many times the floor, or how much, the row may be; None where nothing is asked.
    :ivar least: a rate: the share of the floor that it has to reach.
    :ivar published_value: the same of the published package, measured in the same run.
    :ivar times: how many times less than the published package it has to be.
    :ivar verdict: what was found where the row is measured; by default what the bounds say.
    :ivar data: what it was measured on.
    :ivar runs: how often, and which of the runs counts.
    :ivar is_short: whether a short run measured it, on a machine that may be busy.
    """

    name: str
    unit: str
    ours: float
    floor: float | None = None
    most: float | None = None
    least: float | None = None
    published_value: float | None = None
    times: float | None = None
    verdict: str | None = None
    data: str = ""
    runs: str = ""
    is_short: bool = False

    @property
    def ratio(self) -> float | None:
        return None if not self.floor else self.ours / self.floor

    @property
    def advantage(self) -> float | None:
        """How many times less than the published package."""
        return (
            None
            if self.published_value is None or not self.ours
            else self.published_value / self.ours
        )

    @property
    def holds(self) -> bool:
        """Whether no bound is missed for certain."""
        return FAILS not in self.judgement

    @property
    def judgement(self) -> str:
        """The verdict, empty where nothing is asked."""
        if self.verdict is not None:
            return self.verdict
        beyond = self._beyond()
        if not beyond:
            return ""
        farthest = max(beyond)
        if farthest <= 1.0:
            return HOLDS
        if not self.is_short or self.unit in _COUNTED:
            return FAILS
        # Other work makes the same work take twice the CPU, whatever it is compared with.
        is_ratio = self.floor is not None or self.times is not None
        return FAILS if is_ratio and farthest > FAR else UNDECIDED

    def _beyond(self) -> list[float]:
        """What the row is in shares of each of its bounds; above 1 it is missed."""
        value = self.ours if self.ratio is None else self.ratio
        beyond = []
        if self.most is not None:
            beyond.append(value / self.most if self.most else 1.0 + value)
        if self.times is not None:
            beyond.append(self.times / self.advantage if self.advantage else float("inf"))
        if self.least is not None:
            beyond.append(self.least / value if value else float("inf"))
        return beyond

    def for_short_run(self) -> "Row":
        """Return the row as one of a short run, which leaves open what the load may have turned."""
        return replace(self, is_short=True)

    def cells(self) -> tuple[str, ...]:
        """The row as texts."""
        bounds = []
        if self.times is not None:
            bounds.append(f"at least {self.times:g} x less")
        if self.most is not None:
            bounds.append(f"{self.most:g}" + ("" if self.ratio is None else " x floor"))
        if self.least is not None:
            bounds.append(f"at least {self.least:g} x floor")
        return (
            self.name,
            self.data,
            self.runs,
            self.unit,
            f"{self.ours:.3g}",
            "" if self.published_value is None else f"{self.published_value:.3g}",
            "" if self.advantage is None else f"{self.advantage:.3g} x",
            "" if self.floor is None else f"{self.floor:.3g}",
            "" if self.ratio is None else f"{self.ratio:.2f} x",
            ", ".join(bounds),
            self.judgement,
        )


def show(console: Console, title: str, rows: Iterable[Row]) -> bool:
    """Print rows and how many hold; whether none of them fails."""
    table = Table(title=title)
    texts = ("row", "data", "runs", "unit", "bound", "")
    for heading in (
        *("row", "data", "runs", "unit", "ours", "published", "ratio", "floor", "ratio"),
        *("bound", ""),
    ):
        table.add_column(heading, justify="left" if heading in texts else "right")
    verdicts: Counter[str] = Counter()
    for row in rows:
        table.add_row(*row.cells())
        verdicts[FAILS if not row.holds else row.judgement or "without a bound"] += 1
    console.print(table)
    console.print(", ".join(f"{count} rows: {verdict}" for verdict, count in verdicts.items()))
    return FAILS not in verdicts
