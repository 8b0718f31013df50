"""A look at a hypervisor of which some calls fail."""

from __future__ import annotations

from typing import Any

import pytest

from compute_agent.discovery.errors import CallFailed
from compute_agent.discovery.libvirt import source
from compute_agent.discovery.libvirt.cpu_features import GuestCpuOptions
from compute_agent.discovery.libvirt.guest_abilities import AbilityReader
from compute_agent.discovery.libvirt.join import join
from tests.fixtures.libvirt_documents import X86_CAPABILITIES

from .conftest import MakeConnection


def _fail(*_arguments: object) -> Any:
    raise CallFailed("a call", "internal error: core_id -1 is out of range", 1)


@pytest.mark.parametrize("failing_call", ["getInfo", "getCPUMap"])
def test_a_call_that_fails_leaves_its_fact_unknown_with_a_warning(
    make_connection: MakeConnection, failing_call: str
) -> None:
    """libvirt on RISC-V, whose CPUs have the core -1, has no `getInfo`."""
    calls = {
        "getCapabilities": lambda: X86_CAPABILITIES,
        "getVersion": lambda: 8_002_002,
        "getLibVersion": lambda: 10_000_000,
        "getHostname": lambda: "hv1",
        "getType": lambda: "QEMU",
        "getInfo": lambda: ["riscv64", 161_268, 8],
        "getCPUMap": lambda _flags: (16, [True] * 16, 16),
        failing_call: _fail,
    }
    connection = make_connection(**calls)
    reading = source.read(connection, AbilityReader(connection, GuestCpuOptions("qemu")))
    assert any("core_id -1" in warning for warning in reading.warnings)
    host = join(reading, None)
    assert [cell.id for cell in host.cells] == [0, 2, 5]
    assert host.memory_kib == sum(cell.memory_kib for cell in host.cells)
    if failing_call == "getCPUMap":
        assert host.online_cpus == (0, 1, 4, 5, 10, 11, 14, 15)
