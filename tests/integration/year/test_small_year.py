"""Hours of a year of a fleet, on SQLite and without a bus; `benchmarks.year` lives a whole one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.year.year import Fleet, Plan

_COUNTED = ("rows of ", "slots of ", "server: descriptors", "server: threads")
_OF_HOSTS = {
    "rows of inventories",
    "rows of resource_classes",
    "rows of resource_provider_aggregates",
    "rows of resource_provider_traits",
    "rows of resource_providers",
    "rows of traits",
}


@pytest.fixture(autouse=True)
def _level_of_the_agents_log() -> Iterator[None]:
    log = logging.getLogger("compute_agent")
    level = log.level
    yield
    log.setLevel(level)


# 11 s of CPU, which took two minutes at a load of 25
@pytest.mark.timeout(900)
def test_rows_slots_descriptors_and_threads_do_not_grow(tmp_path: Path) -> None:
    plan = Plan(0.001, 8, (), kept_seconds=60.0, agents=3, held_count=12, prune_every=8)
    fleet = Fleet(tmp_path, f"sqlite:///{tmp_path}/placement.db", plan, None, lambda _sample: None)
    fleet.live()
    counted = [series for series in fleet.year.judged_series() if series.name.startswith(_COUNTED)]
    assert {"rows of consumers", "slots of the index beyond its bound"} <= {s.name for s in counted}
    assert [series for series in counted if not series.holds] == []
    # every host that comes goes again
    hosts = [series for series in counted if series.name in _OF_HOSTS]
    assert len(hosts) == len(_OF_HOSTS)
    assert [series for series in hosts if len({count for _, count in series.points}) > 1] == []
    # which ends with an error when it finds something
    fleet.manage("audit")
