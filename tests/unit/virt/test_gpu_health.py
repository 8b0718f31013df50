"""A GPU that reported an error after which no guest should get it."""

from __future__ import annotations

import uuid as uuidlib

import pytest
from msgspec.structs import replace

from compute_agent.discovery.facts import PciAddress
from compute_agent.virt.fake.topology import MDEV_TYPE, MachineSize, fake_topology
from compute_agent.virt.layout import LayoutOptions
from compute_agent.virt.layout.options import GpuOptions, MdevTypeOptions

from .hosts import NAME, Host

SIZE = MachineSize(cells=2, cpus_per_cell=4, memory_mib_per_cell=8192, gpus=2, nics=0)
OPTIONS = LayoutOptions(gpu=GpuOptions(mdev_types=(MdevTypeOptions(MDEV_TYPE),)))
GPU0, GPU1 = "_pci_0000_20_00_0", "_pci_0000_21_00_0"
UNHEALTHY = "CUSTOM_GPU_UNHEALTHY"


@pytest.fixture
def host() -> Host:
    made = Host(fake_topology(NAME, SIZE), OPTIONS)
    made.update()
    return made


def report_xid(host: Host, xid: int | None) -> None:
    first, *others = host.driver.machine.gpus
    host.change_machine(gpus=(replace(first, critical_xid=xid), *others))


def reserved(host: Host, suffix: str) -> tuple[int, int]:
    record = host.provider(suffix).inventory["VGPU"]
    return int(record["reserved"]), int(record["total"])


def test_it_is_marked_and_all_of_it_is_reserved_and_other_gpus_are_not(host: Host) -> None:
    report_xid(host, 79)
    host.update()
    assert UNHEALTHY in host.provider(GPU0).traits
    assert reserved(host, GPU0) == (4, 4)
    assert UNHEALTHY not in host.provider(GPU1).traits
    assert reserved(host, GPU1) == (0, 4)


def test_it_is_given_out_again_once_error_and_mark_are_gone(host: Host) -> None:
    report_xid(host, 94)
    host.update()
    report_xid(host, None)
    host.tree.remove_traits(f"{NAME}{GPU0}", UNHEALTHY)
    host.update()
    assert reserved(host, GPU0) == (0, 4)


def test_an_error_is_said_once(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    report_xid(host, 95)
    host.update()
    host.update()
    (said,) = [r.getMessage() for r in caplog.records if "Xid 95" in r.getMessage()]
    assert "0000:20:00.0" in said
    assert "clear_fault" in said


def test_an_operator_who_clears_the_fault_reaches_the_gpu_behind_the_provider(host: Host) -> None:
    forgotten: list[PciAddress] = []
    host.driver.forget_fault = forgotten.append  # type: ignore[method-assign]
    host.driver.clear_fault(host.provider(GPU0).uuid)
    host.driver.clear_fault(str(uuidlib.uuid4()))
    assert forgotten == ["0000:20:00.0"]
