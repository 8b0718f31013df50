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


LONG_FOLDERS = {"emulated_host", "burst"}
WAITING_FOLDERS = {"agent", "bus", "libvirt", "lies"}
WHOLE_FOLDERS = {"web"}
"""Which have fixtures of the package, that end when a worker leaves it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes minutes: begun at the end, it would run alone.

    What mostly waits, for daemons, periods and late answers, is spread: beside it others compute.
    """

    long, waiting, others = [], [], []
    for _, group in groupby(items, key=_part_of):
        part = list(group)
        folders = set(part[0].nodeid.partition("::")[0].split("/"))
        kind = long if folders & LONG_FOLDERS else waiting if folders & WAITING_FOLDERS else others
        kind.append(part)
    spread = sorted([*_by_share(waiting), *_by_share(others)], key=lambda shared: shared[0])
    items[:] = chain(*long, *(part for _, part in spread))


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
