"""The host as libvirt's capabilities describe it, and a look of which some calls fail."""

from __future__ import annotations

from typing import Any

import pytest

from compute_agent.discovery.errors import CallFailed, FactMalformed
from compute_agent.discovery.facts import CellId, Cpu, CpuId, HugePages, NumaCell
from compute_agent.discovery.libvirt import source
from compute_agent.discovery.libvirt.cpu_features import GuestCpuOptions
from compute_agent.discovery.libvirt.facts import Emulator
from compute_agent.discovery.libvirt.guest_abilities import AbilityReader
from compute_agent.discovery.libvirt.join import join
from compute_agent.discovery.libvirt.source import parse_capabilities, restrict_to_online
from tests.fixtures.libvirt_documents import (
    AARCH64_CAPABILITIES,
    LXC_CAPABILITIES,
    X86_CAPABILITIES,
)

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


def test_cells_keep_their_numbers_pages_and_distances() -> None:
    cells = parse_capabilities(X86_CAPABILITIES).cells
    assert [cell.id for cell in cells] == [0, 2, 5]
    assert cells[0] == NumaCell(
        id=CellId(0),
        cpus=tuple(map(CpuId, (0, 1, 4, 5))),
        memory_kib=65536000,
        huge_pages=(HugePages(2048, 512), HugePages(1048576, 3)),
        distances=((CellId(0), 10), (CellId(2), 21), (CellId(5), 28)),
    )


def test_a_cell_of_memory_alone_has_neither_cpus_nor_huge_pages() -> None:
    cell = parse_capabilities(X86_CAPABILITIES).cells[2]
    assert (cell.cpus, cell.huge_pages, cell.memory_kib) == ((), (), 33554432)


def test_the_smallest_pages_are_not_huge_and_memory_is_in_the_unit_it_is_written_in() -> None:
    cell = parse_capabilities(AARCH64_CAPABILITIES).cells[0]
    assert (cell.huge_pages, cell.memory_kib) == ((HugePages(524288, 2),), 32 * 1024**2)


def test_threads_of_a_core_are_siblings() -> None:
    cpus = {cpu.id: cpu.siblings for cpu in parse_capabilities(X86_CAPABILITIES).cpus}
    assert cpus[CpuId(0)] == (0, 4)
    assert cpus[CpuId(11)] == (11,)


def test_cpus_that_are_offline_leave_siblings_and_stay_known_to_their_cell() -> None:
    online = tuple(map(CpuId, (0, 1, 4, 10)))
    capabilities = restrict_to_online(parse_capabilities(X86_CAPABILITIES), online)
    assert [cell.cpus for cell in capabilities.cells] == [(0, 1, 4), (10,), ()]
    assert [cell.offline_cpus for cell in capabilities.cells] == [(5,), (11, 14, 15), ()]
    assert capabilities.cpus[1] == Cpu(CpuId(1), (CpuId(1),))
    assert [cpu.id for cpu in capabilities.cpus] == list(online)


def test_the_cpu_model_is_read_with_what_it_has_beyond_its_name() -> None:
    capabilities = parse_capabilities(X86_CAPABILITIES)
    assert (capabilities.arch, capabilities.vendor) == ("x86_64", "Intel")
    assert capabilities.model == "Skylake-Server-IBRS"
    assert capabilities.cpu_features == ("md-clear", "vmx")
    assert capabilities.cpu_xml is not None
    assert capabilities.cpu_xml.startswith("<cpu>")


def test_emulators_have_kinds_of_guests_and_the_machine_types_that_aliases_mean() -> None:
    assert parse_capabilities(X86_CAPABILITIES).emulators == (
        Emulator("aarch64", "/usr/bin/qemu-system-aarch64", ("qemu",), ("virt-7.2",)),
        Emulator(
            "x86_64",
            "/usr/bin/qemu-system-x86_64",
            ("kvm", "qemu"),
            ("pc-i440fx-7.2", "pc-q35-7.2"),
        ),
    )


def test_a_host_of_containers_has_neither_topology_nor_model() -> None:
    capabilities = parse_capabilities(LXC_CAPABILITIES)
    assert (capabilities.cells, capabilities.cpus, capabilities.model) == ((), (), None)
    assert capabilities.emulators == (Emulator("x86_64", "/usr/libexec/libvirt_lxc", ("lxc",), ()),)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<arch>x86_64</arch>", "", "host/cpu/arch"),
        ("</capabilities>", "", "an XML document"),
    ],
)
def test_a_malformed_document_is_an_error_that_names_the_place(
    old: str, new: str, message: str
) -> None:
    with pytest.raises(FactMalformed, match=message):
        parse_capabilities(X86_CAPABILITIES.replace(old, new))


def test_a_cpu_of_two_cells_stays_in_the_first_with_a_warning() -> None:
    """As of a kernel that was booted with `numa=fake`."""
    host = parse_capabilities(
        X86_CAPABILITIES.replace("<cpu id='11'/>", "<cpu id='0' siblings='0,11'/>")
    )
    assert [cell.cpus for cell in host.cells] == [(0, 1, 4, 5), (10, 14, 15), ()]
    assert [cpu.siblings for cpu in host.cpus if cpu.id == 0] == [(0, 4)]
    assert ["CPUs 0 of a cell before it" in warning for warning in host.warnings] == [True]


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("<cell id='2'>", "<cell id='0'>", "cell@id"),
        ("<cell id='2'>", "<cell id='-2'>", "-2"),
        ("<memory unit='KiB'>33554432", "<memory unit='ells'>33554432", "ells"),
        ("<memory unit='KiB'>33554432", "<memory unit='KiB'>much", "much"),
        ("<cpu id='11'/>", "<cpu id='x'/>", "cpu@id"),
    ],
)
def test_a_cell_that_cannot_be_read_does_not_take_the_host_away(
    old: str, new: str, word: str
) -> None:
    assert old in X86_CAPABILITIES
    host = parse_capabilities(X86_CAPABILITIES.replace(old, new))
    assert len(host.cells) == 2
    assert any(word in warning for warning in host.warnings)


def test_siblings_that_are_no_list_are_unknown() -> None:
    host = parse_capabilities(X86_CAPABILITIES.replace("siblings='0,4'", "siblings='0,x'"))
    assert host.cpus[0].siblings == (0,)
    assert any("siblings" in warning for warning in host.warnings)
