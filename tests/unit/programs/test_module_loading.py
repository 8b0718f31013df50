"""Collections while modules are loaded."""

import contextlib
import gc
from collections.abc import Iterator

import pytest

from compute_agent.programs.module_loading import without_collections


@pytest.fixture(autouse=True)
def _collector() -> Iterator[None]:
    yield
    gc.enable()


@pytest.mark.parametrize("error", [None, ModuleNotFoundError], ids=["loaded", "missing"])
@pytest.mark.parametrize("was_enabled", [True, False], ids=["enabled", "disabled"])
def test_the_collector_is_afterwards_as_it_was(was_enabled, error):
    if not was_enabled:
        gc.disable()
    with contextlib.suppress(ModuleNotFoundError), without_collections():
        assert not gc.isenabled()
        if error is not None:
            raise error
    assert gc.isenabled() == was_enabled


def test_what_is_loaded_is_left_out_of_later_collections():
    with without_collections():
        loaded_object = ["of a module"]
    collected_objects = gc.get_objects()
    assert not any(candidate is loaded_object for candidate in collected_objects)
