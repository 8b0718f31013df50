"""Rows of costs, each with its floor or an absolute bound, and whether that holds."""

from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Row:
    """A cost beside what it is compared with.

    :ivar floor: the unavoidable part, measured in the same run; None for an absolute bound.
    :ivar most: how many times the floor, or how much, the row may be; None where nothing is asked.
    :ivar least: a rate: the share of the floor that it has to reach.
    """

    name: str
    unit: str
    ours: float
    floor: float | None = None
    most: float | None = None
    least: float | None = None

    @property
    def ratio(self) -> float | None:
        return None if not self.floor else self.ours / self.floor

    @property
    def holds(self) -> bool:
        value = self.ours if self.ratio is None else self.ratio
        above = self.most is not None and value > self.most
        return not above and (self.least is None or value >= self.least)

    def cells(self) -> tuple[str, ...]:
        """The row as texts."""
        bound = ""
        if self.most is not None:
            bound = f"{self.most:g}" + ("" if self.ratio is None else " x")
        elif self.least is not None:
            bound = f"at least {self.least:g} x"
        judged = self.most is not None or self.least is not None
        return (
            self.name,
            self.unit,
            f"{self.ours:.3g}",
            "" if self.floor is None else f"{self.floor:.3g}",
            "" if self.ratio is None else f"{self.ratio:.2f} x",
            bound,
            ("holds" if self.holds else "FAILS") if judged else "",
        )


def show(console: Console, title: str, rows: Iterable[Row]) -> bool:
    """Print rows; whether the bounds of all hold."""
    table = Table(title=title)
    for heading in ("row", "unit", "ours", "floor", "ratio", "at most", ""):
        table.add_column(heading, justify="left" if heading in ("row", "") else "right")
    held = True
    for row in rows:
        table.add_row(*row.cells())
        held &= row.holds
    console.print(table)
    return held
