"""A year of a fleet in small, very small; and what counts as growth."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.year.series import Bound, Series
from benchmarks.year.year import Fleet, Plan


@pytest.mark.parametrize("migrated_database_url", ["sqlite"], indirect=True)
def test_nothing_grows_in_a_very_small_year(migrated_database_url: str, tmp_path: Path) -> None:
    plan = Plan(0.002, periods=8, restarts=(2,), kept_seconds=5, agents=4, held=18, prune_every=4)
    fleet = Fleet(tmp_path, migrated_database_url, plan, broker=None)
    fleet.live(print)
    # times are those of a machine that does something else as well
    broken = [name for name in fleet.year.broken() if "ms" not in name]
    assert broken == []
    assert "Nothing is wrong" in fleet.manage("audit")
    assert {"server: MiB", "agent: threads", "rows of consumers", "slots of the index"} <= {
        series.name for series in fleet.year.judged()
    }


def series(bound: Bound, *values: float) -> Series:
    points = [((number + 1) / len(values), value) for number, value in enumerate(values)]
    return Series("some", bound, points)


def test_growth_is_what_the_later_part_of_a_year_would_add_to_a_whole_one() -> None:
    steady = series(Bound(amount=1), 0, 20, 40, 60, 80, 100, 101, 102, 102, 101)
    assert steady.holds
    growing = series(Bound(amount=9), *range(10, 110, 10))
    assert growing.growth == pytest.approx(100)
    assert not growing.holds
    assert series(Bound(share=2), *range(10, 110, 10)).holds
    assert series(Bound(), *range(100, 0, -10)).holds
