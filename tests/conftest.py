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


WHOLE_FOLDERS = {"web"}
"""Folders with fixtures of the package, which end when a worker leaves it."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let half of the workers begin with tests that wait, while the others compute.

    A worker begins with its share of the list, all shares being as long, and then takes what others
    have left. What takes minutes is begun at once: begun at the end, it would run alone.
    """
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers == 1:
        return
    long: list[list[pytest.Item]] = []
    waiting: list[list[pytest.Item]] = []
    others: list[list[pytest.Item]] = []
    for _, group in groupby(items, key=_part_of):
        part = list(group)
        marks = {mark.name for mark in part[0].iter_markers()}
        kind = long if "long" in marks else waiting if "waiting" in marks else others
        kind.append(part)
    waiting_workers = workers // 2
    ordered: list[list[pytest.Item]] = []
    for number in range(waiting_workers):
        share = waiting[number::waiting_workers]
        while others and sum(map(len, share)) < len(items) // workers:
            share.append(others.pop())
        ordered += share
    items[:] = chain(*ordered, *long, *others)


def _part_of(item: pytest.Item) -> Path:
    """Return what is not divided: a module, or a whole folder."""
    return item.path.parent if item.path.parent.name in WHOLE_FOLDERS else item.path


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Leave what was imported and collected out of all later collections of garbage: it stays."""
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
