"""Reshapes of devices, any of them at once: no unit is lost, none is made, and the check agrees.

GPUs counted whole or by function, classes under other names, contexts of encrypted guests, PCI
devices that placement begins to count, all of it also while CPUs move to cells and back.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.discovery.facts import GpuVf, HostTopology, MdevType, MemoryEncryption
from compute_agent.discovery.pci_address import pci_address as address_of
from compute_agent.provider_tree import ProviderTree
from compute_agent.provider_tree.trait_names import CUSTOM_DEVICE_MISSING
from compute_agent.tracker.passes import reshape_check
from compute_agent.virt.driver import InstanceDevices, MdevUse
from compute_agent.virt.fake.topology import MDEV_TYPE, MachineSize, fake_topology
from compute_agent.virt.layout import LayoutOptions
from compute_agent.virt.layout.device_spec import parse_device_specs
from compute_agent.virt.layout.options import GpuOptions, MdevTypeOptions, PciOptions
from tests.unit.virt.hosts import NAME, ROOT, Host, consumer, content, held_of

ENCRYPTION = "MEM_ENCRYPTION_CONTEXT"
PCI = "CUSTOM_PCI_8086_1889"
GPU_CLASSES = ("VGPU", "CUSTOM_BIG", "CUSTOM_SMALL")
NIC_VFS = PciOptions(
    report=True,
    device_specs=parse_device_specs([json.dumps({"product_id": "1889"})], report=True),
)
CONTEXTS = 16


@dataclass
class Case:
    """A host that was laid out one way and is now to be laid out another way."""

    host: Host
    before: dict[str, dict[str, Any]]
    was: LayoutOptions
    pci_held: Counter[str] = field(default_factory=Counter)
    """How many NIC functions each guest has that placement never counted."""

    def reshape(self) -> tuple[ProviderTree, dict[str, dict[str, Any]]]:
        """The tree before, and the allocations after."""
        base = self.host.tree
        return base, self.host.reshape(self.before)


def machine(size: MachineSize, vfs: int) -> HostTopology:
    """A machine whose GPUs make their vGPUs on virtual functions, if they have some."""
    facts = fake_topology(NAME, size)
    if not vfs:
        return facts
    gpus = tuple(
        replace(
            gpu,
            mdev_types=(),
            vfs=tuple(
                GpuVf(
                    address_of(f"{gpu.address[:-1]}{i + 1}"),
                    i,
                    gpu.numa_node,
                    mdev_types=(MdevType(MDEV_TYPE, 1),),
                )
                for i in range(vfs)
            ),
        )
        for gpu in facts.gpus
    )
    return replace(facts, gpus=gpus)


@st.composite
def layouts(draw: st.DrawFn) -> LayoutOptions:
    resource_class = draw(st.sampled_from(GPU_CLASSES))
    return LayoutOptions(
        is_nested=draw(st.booleans()),
        reserved_memory_mib=0,
        gpu=GpuOptions(
            mdev_types=(MdevTypeOptions(MDEV_TYPE, resource_class=resource_class),),
            vf_providers=draw(st.sampled_from(["per_vf", "per_pf"])),
        ),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    size = MachineSize(
        cells=draw(st.integers(1, 2)),
        cpus_per_cell=16,
        memory_mib_per_cell=65536,
        gpus=draw(st.integers(0, 2)),
        nics=draw(st.integers(0, 1)),
        pfs_per_nic=1,
        vfs_per_pf=3,
    )
    host = Host(machine(size, draw(st.integers(0, 3))), draw(layouts()))
    host.update()
    encrypted = draw(st.booleans())
    if encrypted:
        inventory = host.provider().inventory
        host.tree.update_inventory(ROOT, {**inventory, ENCRYPTION: {"total": CONTEXTS}})
    names = [f"guest-{i}" for i in range(draw(st.integers(1, 4)))]
    held: dict[str, dict[str, Counter[str]]] = {name: {} for name in names}

    def give(name: str, provider: str, resource_class: str, amount: int = 1) -> None:
        held[name].setdefault(provider, Counter())[resource_class] += amount

    home = next(p.uuid for p in content(host.tree) if "VCPU" in p.inventory)
    for name in names:
        give(name, home, "VCPU")
        give(name, home, "MEMORY_MB", 512)
        if encrypted and draw(st.booleans()):
            give(name, ROOT, ENCRYPTION)
    whoever = st.sampled_from([None, *names])
    for provider in content(host.tree):
        for resource_class in set(GPU_CLASSES) & provider.inventory.keys():
            for _unit in range(int(provider.inventory[resource_class]["total"])):
                if name := draw(whoever):
                    give(name, provider.uuid, resource_class)
    case = Case(host, {name: consumer(**held[name]) for name in names}, host.driver.options)
    change(draw, case, names, encrypted=encrypted)
    return case


def change(draw: st.DrawFn, case: Case, names: list[str], *, encrypted: bool) -> None:
    """Give the host other options, and guests what only the host knows of."""
    host = case.host
    host.driver.options = draw(layouts())
    if encrypted:
        sev = MemoryEncryption(amd_sev=True, capacity=(("sev", CONTEXTS),))
        host.change_machine(memory_encryption=sev)
    whoever = st.sampled_from([None, *names])
    owners = {
        vf.address: name
        for gpu in host.driver.machine.gpus
        for vf in gpu.vfs
        if (name := draw(whoever))
    }
    functions = {}
    if draw(st.booleans()):
        host.change(pci=NIC_VFS)
        functions = {
            vf.address: name
            for port in host.driver.machine.nics
            for vf in port.vfs
            if (name := draw(whoever))
        }
    case.pci_held.update(functions.values())
    host.driver.guests = {
        name: InstanceDevices(
            mdevs=tuple(MdevUse(f"m-{a}", a) for a, owner in owners.items() if owner == name),
            pci_addresses=tuple(a for a, owner in functions.items() if owner == name),
        )
        for name in names
    }


def kind(resource_class: str) -> str:
    return "GPU" if resource_class in GPU_CLASSES else resource_class


def kinds(record: Mapping[str, Any]) -> Counter[str]:
    """What a consumer holds, a vGPU being one under whichever name."""
    total: Counter[str] = Counter()
    for amounts in held_of(record).values():
        for resource_class, amount in amounts.items():
            total[kind(resource_class)] += amount
    return total


@given(cases())
def test_every_unit_is_still_held_and_the_check_finds_nothing(case: Case) -> None:
    base, after = case.reshape()
    assert after.keys() == case.before.keys()
    for name, record in after.items():
        healed = Counter({PCI: case.pci_held[name]}) if case.pci_held[name] else Counter()
        assert kinds(record) == kinds(case.before[name]) + healed
    reshape_check.check(base, case.host.tree, case.before, after, ROOT)


@given(cases())
def test_nothing_stays_where_it_is_no_longer_counted(case: Case) -> None:
    was, now = case.was.gpu, case.host.driver.options.gpu
    old, new = was.mdev_types[0].resource_class, now.mdev_types[0].resource_class
    # a custom class and the functions it counts do not change in one step
    assume(old in (new, "VGPU") or was.vf_providers == now.vf_providers)
    _base, after = case.reshape()
    held = {(uuid, rc) for r in after.values() for uuid, a in held_of(r).items() for rc in a}
    assert (ROOT, ENCRYPTION) not in held
    assert {rc for _uuid, rc in held if kind(rc) == "GPU"} <= {new}
    for uuid, _rc in held:
        assert CUSTOM_DEVICE_MISSING not in case.host.tree.data(uuid).traits


@given(cases())
def test_it_is_not_due_on_its_own_result(case: Case) -> None:
    _base, after = case.reshape()
    held: dict[str, Counter[str]] = {}
    for record in after.values():
        for uuid, amounts in held_of(record).items():
            held.setdefault(uuid, Counter()).update(amounts)
    case.host.driver.usage_source = lambda uuid: held.get(uuid, {})
    tree = content(case.host.tree)
    assert content(case.host.update()) == tree


@given(cases(), st.data())
def test_a_unit_taken_and_one_of_another_kind_given_is_found(case: Case, data: Any) -> None:
    base, after = case.reshape()
    units = [
        (uuid, rc) for uuid in after for amounts in held_of(after[uuid]).values() for rc in amounts
    ]
    victim, taken = data.draw(st.sampled_from(units))
    places = [
        (provider.uuid, rc)
        for provider in content(case.host.tree)
        for rc in provider.inventory
        if kind(rc) != kind(taken)
    ]
    assume(places)
    where, given_class = data.draw(st.sampled_from(places))
    entries = after[victim]["allocations"]
    source = next(u for u, entry in entries.items() if taken in entry["resources"])
    entries[source]["resources"][taken] -= 1
    if not entries[source]["resources"][taken]:
        del entries[source]["resources"][taken]
    target = entries.setdefault(where, {"resources": {}})["resources"]
    target[given_class] = target.get(given_class, 0) + 1
    for uuid in [u for u, entry in entries.items() if not entry["resources"]]:
        del entries[uuid]
    with pytest.raises(errors.ReshapeFailed, match=f"consumer {victim} held"):
        reshape_check.check(base, case.host.tree, case.before, after, ROOT)
