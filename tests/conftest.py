"""Parts that all test folders share: hypothesis profiles and fixtures of system parts."""

import gc
import logging
import os
import sys
from collections.abc import Iterator

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


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Undo what a command did to logging, which it sets up for a process of its own."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


FIRST_FOLDERS = (
    # what takes minutes, then what takes up to half of one: begun at the end, it would run alone
    {"emulated_host", "burst"},
    {"bus"},
    # what mostly waits, for daemons, periods and late answers: beside it others compute
    {"libvirt", "lies", "agent"},
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with FIRST_FOLDERS, in this order."""

    def turn(item: pytest.Item) -> int:
        folders = set(item.path.parts)
        turns = (number for number, first in enumerate(FIRST_FOLDERS) if first & folders)
        return next(turns, len(FIRST_FOLDERS))

    items.sort(key=turn)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Leave what was imported and collected out of all later collections of garbage: it stays."""
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
