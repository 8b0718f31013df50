"""Holdings of a guest of libvirt on its host: CPUs of its own, CPUs to float on, the rest."""

from __future__ import annotations

import pytest

from compute_agent.discovery.facts import CellId, CpuId
from compute_agent.discovery.libvirt.facts import Guest, GuestMdev, GuestMemory
from compute_agent.discovery.pci_address import pci_address
from compute_agent.virt.cpu_sets import CpuSets
from compute_agent.virt.driver import CellUse, MdevUse, MemoryUse
from compute_agent.virt.libvirt.holdings import holdings

GPU = pci_address("0000:84:00.0")


def cpus(*numbers: int) -> tuple[CpuId, ...]:
    return tuple(map(CpuId, numbers))


def guest(
    pins: dict[int, tuple[int, ...]] | None = None,
    *,
    running: bool = True,
    cpuset: tuple[int, ...] = (),
    emulator: tuple[int, ...] = (),
) -> Guest:
    found_pins = (pins or {}).items()
    return Guest(
        uuid="a-uuid",
        name="a-guest",
        is_running=running,
        vcpus=4,
        memory_kib=4 << 20,
        vcpu_pins=tuple((vcpu, CpuId(own[0])) for vcpu, own in found_pins if len(own) == 1),
        wide_cpus=cpus(*sorted({cpu for _vcpu, own in found_pins if len(own) > 1 for cpu in own})),
        widely_pinned_vcpus=sum(len(own) > 1 for _vcpu, own in found_pins),
        cpuset=cpus(*cpuset),
        emulator_cpus=cpus(*emulator),
    )


ALL_PINNED = {0: (4,), 1: (5,), 2: (6,), 3: (7,)}


@pytest.mark.parametrize(
    ("seen", "pinned", "floating"),
    [
        (guest(ALL_PINNED, cpuset=(4, 5, 6, 7)), (4, 5, 6, 7), ()),
        (guest({0: (4,), 1: (5,)}, cpuset=(0, 1)), (4, 5), (0, 1)),
        (guest({0: (4,), 1: (5,), 2: (0, 1), 3: (0, 1)}), (4, 5), (0, 1)),
        (guest(cpuset=(0, 1, 2)), (), (0, 1, 2)),
        (guest(dict.fromkeys(range(4), (0, 1, 2, 3))), (), (0, 1, 2, 3)),
        (guest(dict.fromkeys(range(4), (3,))), (), (3,)),
        (guest(), (), (0, 1, 2, 3, 4, 5, 6, 7)),
    ],
    ids=[
        "all pinned",
        "a part pinned",
        "a part pinned, the rest on the shared set",
        "a common set",
        "a pin of several CPUs for each",
        "one CPU for all",
        "anywhere",
    ],
)
def test_a_cpu_is_a_guests_own_if_one_vcpu_has_it_alone(
    seen: Guest, pinned: tuple[int, ...], floating: tuple[int, ...]
) -> None:
    held = holdings(seen, online=range(8))
    assert (held.pinned_cpus, held.floating_cpus) == (pinned, floating)


def test_a_guest_floats_on_a_shared_cpu_if_there_is_no_other_on_its_cell() -> None:
    sets = CpuSets(shared_cpus=frozenset({0, 2}), dedicated_cpus=frozenset({4, 5}))
    seen = guest({0: (0,), 1: (4,), 2: (2,), 3: (5,)})
    held = holdings(seen, sets, cells=((0, 4), (2, 5)))
    assert (held.pinned_cpus, held.floating_cpus) == ((4, 5), (0, 2))
    one_cell = holdings(seen, sets, cells=((0, 2, 4, 5),))
    assert (one_cell.pinned_cpus, one_cell.floating_cpus) == ((0, 2, 4, 5), ())


def test_emulator_threads_on_a_dedicated_cpu_have_it_if_the_guest_is_pinned() -> None:
    sets = CpuSets(shared_cpus=frozenset({0, 1}), dedicated_cpus=frozenset({4, 5, 6, 7, 8}))
    isolated, shared = guest(ALL_PINNED, emulator=(8,)), guest(ALL_PINNED, emulator=(0, 1))
    assert holdings(isolated, sets).pinned_cpus == (4, 5, 6, 7, 8)
    assert holdings(shared, sets).pinned_cpus == (4, 5, 6, 7)
    assert holdings(guest(cpuset=(0, 1), emulator=(8,)), sets).pinned_cpus == ()


def test_a_guest_that_is_shut_off_keeps_its_cpus_and_floats_nowhere() -> None:
    assert holdings(guest(ALL_PINNED, running=False)).pinned_cpus == (4, 5, 6, 7)
    assert holdings(guest(running=False, cpuset=(0, 1)), online=range(8)).floating_cpus == ()


def test_cells_pages_functions_and_mediated_devices_that_exist_are_held() -> None:
    held = holdings(
        Guest(
            uuid="a-uuid",
            name="a-guest",
            is_running=False,
            vcpus=4,
            memory_kib=4 << 20,
            numa_cells=((CellId(1), 4, 4 << 20),),
            page_size_kib=2048,
            pci_addresses=(GPU,),
            mdevs=(GuestMdev("here", "nvidia-35", GPU), GuestMdev("gone")),
            memory=(GuestMemory(CellId(1), 2048, 4 << 20),),
            pmem_paths=("/dev/dax0.1", "/dev/dax0.0", "/var/lib/a-file"),
        ),
        namespaces={"/dev/dax0.1": "ns1"},
    )
    assert (held.memory, held.pmem) == ((MemoryUse(1, 2048, 4096),), ("/dev/dax0.0", "ns1"))
    assert held.cells == (CellUse(1, 4, 4096),)
    assert held.page_size_kib == 2048
    assert held.pci_addresses == (GPU,)
    assert held.mdevs == (MdevUse("here", GPU, "nvidia-35"),)
