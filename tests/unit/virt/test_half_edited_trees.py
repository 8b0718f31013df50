"""The second call of a reshape finishes the work on a tree that the first has edited half.

A tree goes from what placement has to what the layout wants in steps; whatever steps were done when
the second call comes, tree and allocations end up as if none had been.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.discovery.facts import MemoryEncryption, PciAddress
from compute_agent.provider_tree import ProviderTree, child_uuid
from compute_agent.tracker.passes import reshape_check
from compute_agent.virt.driver import CellUse, InstanceDevices, MdevUse
from compute_agent.virt.fake.topology import MDEV_TYPE
from compute_agent.virt.layout.device_spec import parse_device_specs
from compute_agent.virt.layout.options import GpuOptions, MdevTypeOptions, PciOptions

from .hosts import ROOT, Host, consumer, content, reported
from .reshaped_machine import (
    ELSEWHERE,
    FLAT,
    GPU0,
    GPU1,
    HALF_DEDICATED,
    VGPU,
    machine,
    root_with,
    sriov_machine,
)

Held = dict[str, dict[str, int]]


@dataclass
class Case:
    """A host that needs a reshape, and what is held of it."""

    host: Host
    allocations: dict[str, Any]

    def again(self, tree: ProviderTree) -> Host:
        """The same host with another tree and a driver that has seen nothing yet."""
        again = Host(self.host.driver.machine, self.host.driver.options)
        again.driver.guests = self.host.driver.guests
        again.tree = tree
        return again


def a_case(host: Host, **held: Held) -> Case:
    """Each consumer holds something elsewhere besides."""
    return Case(
        host,
        {name: consumer(**{ELSEWHERE: {"VCPU": 1}}, **holding) for name, holding in held.items()},
    )


def uuid_of(host: Host, address: str) -> str:
    return host.provider(f"_pci_{address.replace(':', '_').replace('.', '_')}").uuid


def flat_to_nested() -> Case:
    host = reported(machine(), FLAT)
    host.driver.guests["known"] = InstanceDevices(cells=(CellUse(1, 2, 512),), page_size_kib=2048)
    host.change(is_nested=True)
    held = {"VCPU": 2, "MEMORY_MB": 512}
    return a_case(
        host,
        known={ROOT: {**held, "DISK_GB": 1}, uuid_of(host, GPU0): {"VGPU": 1}},
        unknown={ROOT: held},
    )


def flat_to_nested_with_a_ratio() -> Case:
    """The cells take the ratio of the root, which a tree without the root's record cannot tell."""
    case = flat_to_nested()
    inventory = case.host.provider().inventory
    vcpu = {**inventory["VCPU"], "allocation_ratio": 16.0}
    case.host.tree.update_inventory(ROOT, {**inventory, "VCPU": vcpu})
    return case


def nested_to_flat() -> Case:
    host = reported(machine(), replace(FLAT, is_nested=True))
    host.change(is_nested=False)
    cell0, cell1 = (child_uuid(ROOT, f"numa:{i}") for i in (0, 1))
    pages = child_uuid(ROOT, "pages:1:2048")
    return a_case(
        host,
        pages={cell1: {"VCPU": 2}, pages: {"MEMORY_MB": 512}},
        split={cell0: {"VCPU": 1, "MEMORY_MB": 5}, cell1: {"VCPU": 1, "MEMORY_MB": 6}},
    )


def pinned_guests() -> Case:
    host = reported(machine(), FLAT)
    host.driver.guests["pinned"] = InstanceDevices(pinned_cpus=(2, 3))
    host.change(cpu_sets=HALF_DEDICATED)
    held = {"VCPU": 2, "MEMORY_MB": 10}
    return a_case(host, pinned={ROOT: held}, floating={ROOT: held})


def pinned_guests_to_nested() -> Case:
    case = pinned_guests()
    case.host.change(is_nested=True)
    return case


def vgpus_on_the_root() -> Case:
    host = reported(machine(), FLAT)
    root_with(host, "VGPU", 8)
    host.driver.guests["a"] = InstanceDevices(mdevs=(MdevUse("1", GPU0), MdevUse("2", GPU1)))
    return a_case(host, a={ROOT: {"VGPU": 2, "VCPU": 1}})


def vgpus_on_the_root_of_a_new_host() -> Case:
    case = vgpus_on_the_root()
    for address in (GPU0, GPU1):
        case.host.tree.remove(uuid_of(case.host, address))
    return case


def memory_encryption() -> Case:
    host = reported(machine(), FLAT)
    root_with(host, "MEM_ENCRYPTION_CONTEXT", 16)
    host.change_machine(memory_encryption=MemoryEncryption(amd_sev=True, capacity=(("sev", 16),)))
    return a_case(host, a={ROOT: {"MEM_ENCRYPTION_CONTEXT": 1, "VCPU": 1}})


def class_renamed() -> Case:
    host = reported(machine(), FLAT)
    big = MdevTypeOptions(MDEV_TYPE, resource_class="CUSTOM_BIG_GPU")
    host.change(gpu=GpuOptions(mdev_types=(big,)))
    gpu = uuid_of(host, GPU0)
    return a_case(host, a={gpu: {"VGPU": 2}, ROOT: {"VCPU": 1}}, b={gpu: {"VGPU": 2}})


def gpu_host(vf_providers: str, *, nested: bool = False) -> Host:
    gpu = replace(VGPU, vf_providers=vf_providers)
    return reported(sriov_machine(), replace(FLAT, gpu=gpu, is_nested=nested))


def vfs_to_pf(host: Host | None = None) -> Case:
    host = host or gpu_host("per_vf")
    host.change(gpu=replace(VGPU, vf_providers="per_pf"))
    vf1, vf2 = (uuid_of(host, f"0000:20:00.{i}") for i in (1, 2))
    return a_case(host, a={vf1: {"VGPU": 1}, ROOT: {"VCPU": 1}}, b={vf2: {"VGPU": 1}})


def vfs_to_pf_nested() -> Case:
    return vfs_to_pf(gpu_host("per_vf", nested=True))


def pf_to_vfs(host: Host | None = None) -> Case:
    host = host or gpu_host("per_pf")
    host.driver.guests["known"] = InstanceDevices(mdevs=(MdevUse("u", PciAddress("0000:20:00.2")),))
    host.change(gpu=replace(VGPU, vf_providers="per_vf"))
    gpu = uuid_of(host, GPU0)
    return a_case(host, known={gpu: {"VGPU": 1}}, stranger={gpu: {"VGPU": 2}})


def pf_to_vfs_nested() -> Case:
    return pf_to_vfs(gpu_host("per_pf", nested=True))


def with_other_uuids(host: Host) -> Host:
    """As if another compute service had made the providers of devices, under uuids of its own."""
    for old in [provider for provider in content(host.tree) if "_pci_" in provider.name]:
        host.tree.remove(old.uuid)
        uuid = host.tree.new_child(old.name, old.parent_uuid or ROOT, child_uuid(ROOT, old.name))
        host.tree.update_inventory(uuid, old.inventory)
        host.tree.update_traits(uuid, old.traits)
    return host


def adopted_vfs_to_pf() -> Case:
    return vfs_to_pf(with_other_uuids(gpu_host("per_vf")))


def adopted_pf_to_vfs() -> Case:
    return pf_to_vfs(with_other_uuids(gpu_host("per_pf")))


def devices_that_guests_hold() -> Case:
    host = reported(machine(gpus=0, nics=2, vfs_per_pf=4))
    host.driver.guests["a"] = InstanceDevices(pci_addresses=(PciAddress("0001:80:00.0"),))
    specs = parse_device_specs([json.dumps({"product_id": "1889"})], report=True)
    host.change(pci=PciOptions(True, specs))
    return a_case(host, a={ROOT: {"VCPU": 1}})


FROM_ALLOCATIONS_ALONE: tuple[Callable[[], Case], ...] = (
    flat_to_nested,
    nested_to_flat,
    pinned_guests,
    pinned_guests_to_nested,
    vgpus_on_the_root,
    vgpus_on_the_root_of_a_new_host,
    memory_encryption,
    class_renamed,
    vfs_to_pf,
    vfs_to_pf_nested,
    pf_to_vfs,
    pf_to_vfs_nested,
)
ALL: tuple[Callable[[], Case], ...] = (
    *FROM_ALLOCATIONS_ALONE,
    flat_to_nested_with_a_ratio,
    adopted_vfs_to_pf,
    adopted_pf_to_vfs,
    devices_that_guests_hold,
)

Step = Callable[[ProviderTree], object]


def steps(base: ProviderTree, done: ProviderTree) -> dict[str, list[Step]]:
    """What turns one tree into the other, by kind."""
    made: dict[str, list[Step]] = {kind: [] for kind in ("make", "gain", "move", "lose", "remove")}
    for new in content(done):
        old = base.data(new.uuid) if base.exists(new.uuid) else None
        if old is None:
            parent = new.parent_uuid or ROOT
            made["make"].append(lambda t, n=new, p=parent: t.new_child(n.name, p, n.uuid))
        elif old.parent_uuid != new.parent_uuid:
            made["move"].append(lambda t, n=new: t.move(n.uuid, n.parent_uuid))
        made["gain"].append(
            lambda t, n=new: t.update_inventory(n.uuid, {**t.data(n.uuid).inventory, **n.inventory})
        )
        made["gain"].append(lambda t, n=new: t.update_traits(n.uuid, n.traits))
        if old is not None and old.inventory.keys() - new.inventory.keys():
            made["lose"].append(
                lambda t, n=new: t.update_inventory(
                    n.uuid,
                    {rc: r for rc, r in t.data(n.uuid).inventory.items() if rc in n.inventory},
                )
            )
    for old in reversed([old for old in content(base) if not done.exists(old.uuid)]):
        made["lose"].append(lambda t, u=old.uuid: t.update_inventory(u, {}))
        made["remove"].append(lambda t, u=old.uuid: t.remove(u))
    return made


def half_edited(
    base: ProviderTree, done: ProviderTree, order: str
) -> Iterator[tuple[str, ProviderTree]]:
    """Every tree on the way from one to the other, from untouched to all done."""
    tree = base.snapshot()
    yield "nothing", tree.snapshot()
    made = steps(base, done)
    for kind in order.split():
        for number, step in enumerate(made[kind], 1):
            step(tree)
            yield f"{kind} {number} of {len(made[kind])}", tree.snapshot()


def told(tree: ProviderTree) -> dict[str, tuple[Any, ...]]:
    """A tree without the order in which its providers came."""
    return {
        p.uuid: (p.name, p.parent_uuid, p.inventory, p.traits, p.aggregates) for p in content(tree)
    }


def needs_a_reshape(host: Host) -> None:
    with pytest.raises(errors.ReshapeNeeded):
        host.update()


ADDING_FIRST = "make gain move lose remove"
REMOVING_FIRST = "lose make move remove gain"


@pytest.mark.parametrize(("make", "order"), list(product(ALL, (ADDING_FIRST, REMOVING_FIRST))))
def test_the_second_call_finishes_what_was_begun(make: Callable[[], Case], order: str) -> None:
    case = make()
    base = case.host.tree
    clean = case.again(base)
    needs_a_reshape(clean)
    expected = clean.reshape(case.allocations)
    assert expected != case.allocations
    for done, tree in half_edited(base, clean.tree, order):
        host = case.again(base)
        needs_a_reshape(host)
        host.tree = tree
        assert host.reshape(case.allocations) == expected, done
        assert told(host.tree) == told(clean.tree), done
        reshape_check.check(base, host.tree, case.allocations, expected, ROOT)
        before = content(host.tree)
        assert content(host.update()) == before, done


@pytest.mark.parametrize("make", FROM_ALLOCATIONS_ALONE)
def test_what_has_no_inventory_any_more_moves_without_a_first_call(
    make: Callable[[], Case],
) -> None:
    case = make()
    clean = case.again(case.host.tree)
    expected = clean.reshape(case.allocations)
    *_, (_done, tree) = half_edited(case.host.tree, clean.tree, REMOVING_FIRST)
    host = case.again(tree)
    assert host.reshape(case.allocations) == expected
    assert told(host.tree) == told(clean.tree)


def test_what_the_first_call_saw_is_forgotten_after_a_call_that_needed_no_reshape() -> None:
    """A device counted since then is one that the guest should have allocations for: drift."""
    case = devices_that_guests_hold()
    host = case.host
    needs_a_reshape(host)
    guests, host.driver.guests = host.driver.guests, {}
    host.update()
    host.driver.guests = guests
    assert host.reshape(case.allocations) == case.allocations


@pytest.mark.parametrize("was_known_to_be_old", [False, True])
def test_what_placement_says_since_the_first_call_counts(was_known_to_be_old: bool) -> None:
    """The second tree is read anew: an operator's ratio is in it that the first one had not."""
    case = flat_to_nested()
    host = case.host
    if was_known_to_be_old:
        host.tree.set_generation(ROOT, 2)
        host.tree.mark_stale(ROOT, ["inventories"])
    needs_a_reshape(host)
    inventory = host.provider().inventory
    vcpu = {**inventory["VCPU"], "allocation_ratio": 16.0}
    host.tree.update_inventory(ROOT, {**inventory, "VCPU": vcpu}, generation=2)
    host.tree.mark_fresh(ROOT)
    host.reshape(case.allocations)
    assert host.provider("_NUMA1").inventory["VCPU"]["allocation_ratio"] == 16.0
