"""A way from a built machine to its topology."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compute_agent.discovery.facts import HostTopology
from compute_agent.discovery.topology import Discovery
from tests.data.machine_builder import MachineBuilder


class Machine(MachineBuilder):
    """A machine below a directory of the test, which discovery reads."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory

    def discovery(self, **more: Any) -> Discovery:
        """Write the machine and return what discovers it."""
        root = self.write(self._directory)
        return Discovery(str(root / "sys"), str(root / "proc"), **more)

    def look(self) -> HostTopology:
        """Discover the machine twice: facts that differ between looks are none."""
        discovery = self.discovery()
        topology = discovery.discover()
        assert discovery.discover() == topology
        return topology


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A host of one cell with two CPUs and nothing else; tests add to it."""
    machine = Machine(tmp_path / "machine")
    machine.cpus("0-1")
    machine.nodes("0")
    machine.node(0, cpus="0-1", memory_kib=1 << 20, distance="10")
    return machine


@pytest.fixture
def two_cells(machine: Machine) -> Machine:
    """A host of two cells with two CPUs each."""
    machine.memory(2 << 20)
    machine.cpus("0-3")
    machine.nodes("0-1")
    machine.node(0, cpus="0-1", memory_kib=1 << 20, distance="10 21")
    machine.node(1, cpus="2-3", memory_kib=1 << 20, distance="21 10")
    return machine
