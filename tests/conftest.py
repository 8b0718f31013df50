"""Parts that all test folders share: hypothesis profiles and fixtures of system parts."""

import gc
import logging
import os
import sys
from collections.abc import Iterator
from itertools import chain, groupby
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# What is imported and collected stays; looking through it for garbage takes a third of the time.
gc.disable()

settings.register_profile(
    "ci",
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
# Long runs are done in pieces, each with its own --hypothesis-seed.
settings.register_profile(
    "long",
    max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES", "50000")),
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Without bytecode each of a thousand starts would compile all that it imports, on the emulated host
# a hundred times slower than here.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

pytest_plugins = [
    "pytester",
    "tests.fixtures.needs",
    "tests.fixtures.programs",
    "tests.fixtures.stand_ins",
    "tests.fixtures.run_parts",
    "tests.fixtures.databases",
    "tests.fixtures.placement",
    "tests.fixtures.keystone",
    "tests.fixtures.rabbitmq",
    "tests.fixtures.libvirtd",
    "tests.fixtures.plain_installation",
]


_LOG_LEVEL = logging.getLogger().level


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Undo what a command did to logging, which it sets up for a process of its own.

    The level is that of the beginning: a fixture of a module is there before this one.
    """
    root = logging.getLogger()
    handlers = list(root.handlers)
    yield
    root.handlers[:] = handlers
    if root.level != _LOG_LEVEL:
        root.setLevel(_LOG_LEVEL)  # looks at all loggers, also where nothing changes


LONG = {"emulated_host", "burst", "test_debian_packages.py"}
"""Folders and modules that take minutes."""
WAITING = {
    *("agent", "bus", "libvirt", "lies"),
    *("test_keystone_faults.py", "test_killed.py", "test_secrets.py"),
}
"""Those that mostly wait."""
WHOLE_FOLDERS = {"web"}
"""Folders with fixtures of the package, which end when a worker leaves it."""
_BEFORE_THE_END = 0.7
"""Share of a worker's tests that has all those which wait: beside its last ones nobody computes."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with what takes minutes: begun at the end, it would run alone.

    What mostly waits, for daemons, periods and late answers, is spread: beside it others compute.
    """

    long: list[list[pytest.Item]] = []
    waiting: list[list[pytest.Item]] = []
    others: list[list[pytest.Item]] = []
    for _, group in groupby(items, key=_part_of):
        part = list(group)
        path = set(part[0].nodeid.partition("::")[0].split("/"))
        kind = long if path & LONG else waiting if path & WAITING else others
        kind.append(part)
    # each begins with as long a part of this list, before it takes what others have left
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    early = [(_early(share, workers), part) for share, part in _by_share(waiting)]
    spread = sorted([*early, *_by_share(others)], key=lambda shared: shared[0])
    items[:] = chain(*long, *(part for _, part in spread))


def _early(share: float, workers: int) -> float:
    """Return a share of all tests that is not at the end of those of a worker."""
    worker, share_of_worker = divmod(share * workers, 1)
    return (worker + share_of_worker * _BEFORE_THE_END) / workers


def _part_of(item: pytest.Item) -> Path:
    """Return what is not divided: a module, or a whole folder."""
    return item.path.parent if item.path.parent.name in WHOLE_FOLDERS else item.path


def _by_share(parts: list[list[pytest.Item]]) -> Iterator[tuple[float, list[pytest.Item]]]:
    """Yield each part with the share of the tests that comes before it."""
    total = sum(map(len, parts))
    before = 0
    for part in parts:
        yield before / total, part
        before += len(part)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Leave what was imported and collected out of all later collections of garbage: it stays."""
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
