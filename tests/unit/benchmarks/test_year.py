"""Growth over a year of a fleet: what counts as such."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.year.series import Bound, Sample, Series, Year, append, read

BOUNDS = ((re.compile("^rows of "), Bound(amount=9)), (re.compile(""), Bound()))


def series(bound: Bound, *values: float) -> Series:
    points = [((number + 1) / len(values), value) for number, value in enumerate(values)]
    return Series("some", bound, points)


def sample(time: float, season: int, **values: float) -> Sample:
    return Sample(time, season, 1.0, 10, {"driver": 0.5, "server": time}, values)


def test_growth_is_what_a_whole_year_would_add() -> None:
    steady = series(Bound(amount=1), 100, 101, 101, 101, 100)
    assert steady.holds
    growing = series(Bound(amount=9), *range(10, 110, 10))
    assert growing.growth == pytest.approx(100)
    assert not growing.holds
    assert series(Bound(share=2), *range(10, 110, 10)).holds
    assert series(Bound(), *range(100, 0, -10)).holds


def test_only_samples_of_processes_that_are_warm_count() -> None:
    year = Year(BOUNDS)
    for number in range(1, 17):
        # grows in each season until the processes are warm
        value = float(min(number % 8 or 8, 3))
        year.samples.append(sample(number / 16, (number - 1) // 8, threads=value, seldom=1.0))
    by_name = {judged.name: judged for judged in year.judged_series()}
    assert [time for time, _ in by_name["threads"].points] == [n / 16 for n in range(11, 17)]
    assert year.broken_series() == []
    # a year that was ended in its first season, before that
    cold = Year(BOUNDS, year.samples[:4])
    assert cold.broken_series() == ["threads"]


def test_cpu_is_added_up_by_part() -> None:
    year = Year(BOUNDS, [sample(0.25, 0), sample(0.5, 0)])
    assert year.cpu() == {"driver": 1.0, "server": 0.75}


def test_a_year_is_read_again_from_its_file(tmp_path: Path) -> None:
    year = Year(BOUNDS, [sample(n / 4, 0, **{"rows of users": 10.0 * n}) for n in range(1, 5)])
    for known_sample in year.samples:
        append(tmp_path / "year.jsonl", known_sample)
    again = read(tmp_path / "year.jsonl", BOUNDS)
    assert again.samples == year.samples
    assert again.broken_series() == ["rows of users"]
