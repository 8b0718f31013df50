"""Collections of a service that looks at its objects rarely."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from compute_agent.daemon import garbage_collection


class Node:
    """An object in a cycle."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _collections_of_the_tests() -> Iterator[None]:
    was_enabled, thresholds = gc.isenabled(), gc.get_threshold()
    gc.enable()
    yield
    gc.set_threshold(*thresholds)
    if not was_enabled:
        gc.disable()


def test_what_is_in_cycles_stays_until_it_is_freed() -> None:
    gc.collect()
    garbage_collection.expect_large_answers()
    node = weakref.ref(Node())
    # enough for a collection with Python's defaults
    containers = [[] for _ in range(1000)]
    assert len(containers) == 1000
    assert node() is not None
    garbage_collection.free_cycles()
    assert node() is None
