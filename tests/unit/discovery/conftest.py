"""A way from a built machine to its topology."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from compute_agent.discovery.facts import HostTopology
from compute_agent.discovery.topology import Discovery
from tests.data.machine_builder import MachineBuilder

Look = Callable[[MachineBuilder], HostTopology]


@pytest.fixture
def machine() -> MachineBuilder:
    """A host of one cell with two CPUs and nothing else; tests add to it."""
    machine = MachineBuilder()
    machine.cpus("0-1")
    machine.nodes("0")
    machine.node(0, cpus="0-1", memory_kib=1 << 20, distance="10")
    return machine


@pytest.fixture
def two_cells(machine: MachineBuilder) -> MachineBuilder:
    """A host of two cells with two CPUs each."""
    machine.memory(2 << 20)
    machine.cpus("0-3")
    machine.nodes("0-1")
    machine.node(0, cpus="0-1", memory_kib=1 << 20, distance="10 21")
    machine.node(1, cpus="2-3", memory_kib=1 << 20, distance="21 10")
    return machine


@pytest.fixture
def look(tmp_path: Path) -> Look:
    """Writes the machine and discovers it twice: facts that differ between looks are none."""

    def discover(machine: MachineBuilder) -> HostTopology:
        root = machine.write(tmp_path / "machine")
        discovery = Discovery(str(root / "sys"), str(root / "proc"))
        topology = discovery.discover()
        assert discovery.discover() == topology
        return topology

    return discover
