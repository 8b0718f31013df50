"""Machines of the catalogue are read without a warning that is not their lesson."""

from __future__ import annotations

from pathlib import Path

import pytest

from compute_agent.discovery.topology import Discovery
from tests.data import machines

README = Path(machines.__file__).with_name("README.md")
LESSONS = {"limited-container": 1}
"""How many warnings a machine is about."""


@pytest.mark.parametrize("name", machines.NAMES)
def test_each_machine_is_read_and_described(name: str, tmp_path: Path) -> None:
    machine = machines.make(name, tmp_path)
    topology = Discovery(str(machine / "sys"), str(machine / "proc")).discover()
    assert len(topology.warnings) == LESSONS.get(name, 0), topology.warnings
    assert f"| `{name}` |" in README.read_text()
