"""Each line of traps.yaml, what has bitten clients of the Placement API, has its tests."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import yaml

TRAPS: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("traps.yaml").read_text())


def test_the_list_is_whole() -> None:
    assert len({entry["trap"] for entry in TRAPS}) == 111


@pytest.mark.parametrize("entry", TRAPS, ids=[str(number) for number in range(1, len(TRAPS) + 1)])
def test_every_trap_has_tests_that_exist(entry: dict[str, Any]) -> None:
    assert entry["tests"], entry["trap"]
    for name in entry["tests"]:
        module, _, function = name.partition(".")
        tested = importlib.import_module(f"tests.functional.api.test_{module}")
        assert callable(getattr(tested, f"test_{function}", None)), name
