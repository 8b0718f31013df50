"""Rows of costs beside what they are compared with, and whether their bounds hold."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table

#: Bounds that a short run judges by are so much wider: it has a tenth of the data and of the time.
QUICK = 1.5


@dataclass(frozen=True)
class Row:
    """A cost beside what it is compared with.

    :ivar floor: the unavoidable part, measured in the same run; None for an absolute bound.
    :ivar most: how many times the floor, or how much, the row may be; None where nothing is asked.
    :ivar least: a rate: the share of the floor that it has to reach.
    :ivar published: the same of the published package, measured in the same run.
    :ivar times: how many times less than the published package it has to be.
    :ivar verdict: what was found where the row is measured; by default what the bounds say.
    """

    name: str
    unit: str
    ours: float
    floor: float | None = None
    most: float | None = None
    least: float | None = None
    published: float | None = None
    times: float | None = None
    verdict: str | None = None

    @property
    def ratio(self) -> float | None:
        return None if not self.floor else self.ours / self.floor

    @property
    def advantage(self) -> float | None:
        """How many times less than the published package."""
        return None if self.published is None or not self.ours else self.published / self.ours

    @property
    def holds(self) -> bool:
        if self.verdict is not None:
            return "FAILS" not in self.verdict
        value = self.ours if self.ratio is None else self.ratio
        above = self.most is not None and value > self.most
        behind = self.times is not None and (self.advantage or 0.0) < self.times
        return not above and not behind and (self.least is None or value >= self.least)

    def for_short_run(self) -> "Row":
        """Return the row with bounds that a short run on a busy machine cannot miss by chance.

        Absolute ones are left out, as the same work takes twice the CPU on a busy machine.
        """
        if self.floor is None:
            return replace(self, most=None)
        return self if self.most is None else replace(self, most=self.most * QUICK)

    def cells(self) -> tuple[str, ...]:
        """The row as texts."""
        bounds = []
        if self.times is not None:
            bounds.append(f"at least {self.times:g} x less")
        if self.most is not None:
            bounds.append(f"{self.most:g}" + ("" if self.ratio is None else " x floor"))
        if self.least is not None:
            bounds.append(f"at least {self.least:g} x floor")
        verdict = self.verdict
        if verdict is None:
            verdict = ("holds" if self.holds else "FAILS") if bounds else ""
        return (
            self.name,
            self.unit,
            f"{self.ours:.3g}",
            "" if self.published is None else f"{self.published:.3g}",
            "" if self.advantage is None else f"{self.advantage:.3g} x",
            "" if self.floor is None else f"{self.floor:.3g}",
            "" if self.ratio is None else f"{self.ratio:.2f} x",
            ", ".join(bounds),
            verdict,
        )


def show(console: Console, title: str, rows: Iterable[Row]) -> bool:
    """Print rows; whether the bounds of all hold."""
    table = Table(title=title)
    texts = ("row", "bound", "")
    for heading in ("row", "unit", "ours", "published", "ratio", "floor", "ratio", *texts[1:]):
        table.add_column(heading, justify="left" if heading in texts else "right")
    held = True
    for row in rows:
        table.add_row(*row.cells())
        held &= row.holds
    console.print(table)
    return held
