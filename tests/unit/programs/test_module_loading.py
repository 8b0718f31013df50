"""Collections while modules are loaded."""

import contextlib
import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from compute_agent.programs.module_loading import load, without_collections


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


def test_a_module_is_loaded_without_collections_and_what_is_loaded_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module_of_a_command.py").write_text(
        "import gc\nWAS_ENABLED = gc.isenabled()\ndef run(): return 7\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert load("module_of_a_command:WAS_ENABLED") is False
        later_object = ["of a caller"]
        assert load("module_of_a_command:run")() == 7
    finally:
        del sys.modules["module_of_a_command"]
    assert any(candidate is later_object for candidate in gc.get_objects())
