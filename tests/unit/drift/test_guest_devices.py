"""Devices that a guest really holds, in terms of providers."""

import pytest

from compute_agent.discovery.pci_address import pci_address
from compute_agent.drift.healing.placement_choice import GuestFacts
from compute_agent.virt.driver import CellUse, InstanceDevices, MdevUse

UUIDS = {
    "host": "root",
    "host_NUMA0": "cell0",
    "host_NUMA0_PAGES2048": "pages0",
    "host_NUMA1": "cell1",
    "host_NUMA1_PAGES2048": "pages1",
    "host_pci_0000_84_00_0": "card84",
    "host_pci_0000_c4_00_0": "cardc4",
    "host:agent": "foreign",
}
ON_BOTH = (CellUse(0, 1, 100), CellUse(1, 3, 300))


def facts(devices: InstanceDevices) -> GuestFacts:
    return GuestFacts(devices, "host", UUIDS)


def test_cpus_and_memory_are_where_the_guest_has_them() -> None:
    known = facts(InstanceDevices(cells=ON_BOTH))
    assert known.of_cells({"VCPU": 4, "MEMORY_MB": 400, "DISK_GB": 1}) == {
        "cell0": {"VCPU": 1, "MEMORY_MB": 100},
        "cell1": {"VCPU": 3, "MEMORY_MB": 300},
    }
    assert set(known.of_cells({"PCPU": 4, "MEMORY_MB": 400})["cell1"]) == {"PCPU", "MEMORY_MB"}


def test_memory_in_huge_pages_is_on_the_provider_of_these_pages() -> None:
    known = facts(InstanceDevices(cells=(CellUse(1, 2, 64),), page_size_kib=2048))
    assert known.of_cells({"VCPU": 2, "MEMORY_MB": 64}) == {
        "cell1": {"VCPU": 2},
        "pages1": {"MEMORY_MB": 64},
    }


@pytest.mark.parametrize(
    "wanted",
    [
        {"VCPU": 5, "MEMORY_MB": 400},
        {"VCPU": 4, "MEMORY_MB": 401},
        {"VCPU": 2, "PCPU": 2, "MEMORY_MB": 400},
        {"DISK_GB": 1},
    ],
)
def test_sums_that_are_not_those_of_the_request_tell_nothing(wanted: dict[str, int]) -> None:
    assert facts(InstanceDevices(cells=ON_BOTH)).of_cells(wanted) == {}


def test_cells_that_have_no_provider_tell_nothing() -> None:
    flat = GuestFacts(InstanceDevices(cells=ON_BOTH), "host", {"host": "root"})
    assert flat.of_cells({"VCPU": 4, "MEMORY_MB": 400}) == {}
    assert facts(InstanceDevices()).of_cells({"VCPU": 4, "MEMORY_MB": 400}) == {}


@pytest.mark.parametrize(
    ("providers", "allowed"),
    [
        (("root", "cell1", "pages1"), True),
        (("cell0",), False),
        (("pages0",), False),
        (("foreign",), True),
        (("somewhere else",), True),
        (("card84",), False),
        (("cardc4",), True),
    ],
)
def test_a_guest_holds_nothing_of_cells_and_cards_that_it_is_not_on(
    providers: tuple[str, ...], allowed: bool
) -> None:
    devices = InstanceDevices(
        cells=(CellUse(1, 2, 64),),
        page_size_kib=2048,
        mdevs=(MdevUse("an mdev", pci_address("0000:c4:00.0")),),
    )
    assert facts(devices).allows(dict.fromkeys(providers)) is allowed


def test_a_function_that_is_no_provider_says_nothing_about_cards() -> None:
    devices = InstanceDevices(pci_addresses=(pci_address("0000:84:00.3"),))
    assert facts(devices).allows({"card84": None})
    assert facts(devices).allows({"cardc4": None})
