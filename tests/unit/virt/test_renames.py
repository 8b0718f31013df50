"""Classes under another name, on any provider: what was held of the old one is held of the new."""

from __future__ import annotations

import json
from typing import Any

import pytest

from compute_agent import errors
from compute_agent.tracker.passes import reshape_check
from compute_agent.virt.cpu_sets import CpuSets
from compute_agent.virt.driver import InstanceDevices
from compute_agent.virt.fake.topology import MachineSize, fake_topology
from compute_agent.virt.layout import LayoutOptions
from compute_agent.virt.layout.device_spec import parse_device_specs
from compute_agent.virt.layout.options import PciOptions
from tests.fixtures.allocations import amounts_of

from .hosts import NAME, ROOT, Host, consumer, content, reported

SIZE = MachineSize(
    cells=2, cpus_per_cell=4, memory_mib_per_cell=8192, gpus=2, nics=1, pfs_per_nic=1, vfs_per_pf=3
)
GPU, PORT = "_0000:20:00.0", "_0000:80:00.0"


def pci(*specs: dict[str, str]) -> PciOptions:
    return PciOptions(True, parse_device_specs([json.dumps(spec) for spec in specs], report=True))


def gpus_as(resource_class: str | None) -> PciOptions:
    tag = {"resource_class": resource_class} if resource_class else {}
    return pci({"vendor_id": "10de", **tag})


def vfs_as(resource_class: str) -> PciOptions:
    return pci({"product_id": "1889", "resource_class": resource_class})


def a_host(**options: Any) -> Host:
    return reported(fake_topology(NAME, SIZE), LayoutOptions(reserved_memory_mib=0, **options))


def reshaped(host: Host, **held: dict[str, int]) -> dict[str, dict[str, int]]:
    """What one consumer holds after the reshape that is due, by the provider's name."""
    with pytest.raises(errors.ReshapeNeeded):
        host.update()
    before = {"one": consumer(**held)}
    base = host.tree
    after = host.reshape(before)
    reshape_check.check(base, host.tree, before, after, ROOT)
    tree = content(host.tree)
    held = {host.tree.data(u).name: a for u, a in amounts_of(after["one"]).items()}
    host.holds(held)
    assert content(host.update()) == tree, "it is not due on its own result"
    return {
        host.tree.data(u).name.removeprefix(NAME): a for u, a in amounts_of(after["one"]).items()
    }


def stored_as(host: Host, suffix: str, old: str, new: str) -> None:
    """Let placement have the record of a class under another name."""
    provider = host.provider(suffix)
    records = {old if rc == new else rc: record for rc, record in provider.inventory.items()}
    host.tree.update_inventory(provider.uuid, records)


@pytest.mark.parametrize("resource_class", ["PCPU", "VCPU", "MEMORY_MB", "DISK_GB"])
def test_a_custom_class_of_the_root_becomes_a_standard_one(resource_class: str) -> None:
    sets = CpuSets(frozenset({0, 1}), frozenset({2, 3}))
    host = a_host(cpu_sets=sets)
    stored_as(host, "", f"CUSTOM_{resource_class}", resource_class)
    assert reshaped(host, **{ROOT: {f"CUSTOM_{resource_class}": 2}}) == {"": {resource_class: 2}}
    assert f"CUSTOM_{resource_class}" not in host.totals()


@pytest.mark.parametrize(
    ("old", "new"), [("CUSTOM_CARD", "PGPU"), ("PGPU", "CUSTOM_CARD"), (None, "PGPU"), ("A", None)]
)
def test_whole_devices_change_their_class_with_their_specification(old, new) -> None:
    by_ids = "CUSTOM_PCI_10DE_2230"
    was = host_class(old) if old else by_ids
    now = host_class(new) if new else by_ids
    host = a_host(pci=gpus_as(old))
    host.change(pci=gpus_as(new))
    uuid = host.provider(GPU).uuid
    assert reshaped(host, **{uuid: {was: 1}, ROOT: {"VCPU": 1}}) == {GPU: {now: 1}, "": {"VCPU": 1}}
    assert host.totals(GPU) == {now: 1}


def host_class(tag: str) -> str:
    return tag if tag in ("PGPU",) or tag.startswith("CUSTOM_") else f"CUSTOM_{tag}"


def test_functions_change_their_class_and_guests_that_hold_some_get_no_more() -> None:
    host = a_host(pci=vfs_as("CUSTOM_OLD"))
    host.change(pci=vfs_as("CUSTOM_NEW"))
    vf = host.driver.machine.nics[0].vfs[0].address
    host.driver.guests = {"one": InstanceDevices(pci_addresses=(vf,))}
    uuid = host.provider(PORT).uuid
    assert reshaped(host, **{uuid: {"CUSTOM_OLD": 1}}) == {PORT: {"CUSTOM_NEW": 1}}


def test_what_an_operator_counts_on_the_root_stays_what_it_is() -> None:
    host = a_host(cpu_sets=CpuSets(frozenset({0, 1})))
    root = host.provider()
    licences = {"CUSTOM_LICENCE": {"total": 2}}
    host.tree.update_inventory(ROOT, {**root.inventory, **licences})
    host.change(cpu_sets=CpuSets(frozenset({0, 1}), frozenset({2, 3})))
    host.update()
    assert host.totals()["PCPU"] == 2


def test_a_class_made_of_other_ids_was_another_device() -> None:
    host = a_host(pci=gpus_as(None))
    stored_as(host, GPU, "CUSTOM_PCI_10DE_1EB8", "CUSTOM_PCI_10DE_2230")
    host.holds({f"{NAME}{GPU}": {"CUSTOM_PCI_10DE_1EB8": 1}})
    host.update()
    assert host.totals(GPU) == {"CUSTOM_PCI_10DE_1EB8": 1, "CUSTOM_PCI_10DE_2230": 1}


def test_another_number_of_functions_is_not_the_same_under_another_name() -> None:
    host = a_host(pci=vfs_as("CUSTOM_OLD"))
    host.change(pci=vfs_as("CUSTOM_NEW"))
    inventory = host.provider(PORT).inventory
    more = {"CUSTOM_OLD": {**inventory["CUSTOM_OLD"], "total": 7}}
    host.tree.update_inventory(host.provider(PORT).uuid, more)
    host.update()
    assert host.totals(PORT) == {"CUSTOM_NEW": 3}


def test_overcommit_goes_with_the_class() -> None:
    host = a_host()
    inventory = dict(host.provider().inventory)
    inventory["CUSTOM_VCPU"] = {**inventory.pop("VCPU"), "allocation_ratio": 16.0}
    host.tree.update_inventory(ROOT, inventory)
    assert reshaped(host, **{ROOT: {"CUSTOM_VCPU": 8}}) == {"": {"VCPU": 8}}
    assert host.provider().inventory["VCPU"]["allocation_ratio"] == 16.0


def test_a_device_that_waits_to_be_cleaned_does_so_under_its_new_name_too() -> None:
    one_time = {"vendor_id": "10de", "one_time_use": "true"}
    host = a_host(pci=pci(one_time))
    inventory = host.provider(GPU).inventory
    dirty = {rc: {**record, "reserved": 1} for rc, record in inventory.items()}
    host.tree.update_inventory(host.provider(GPU).uuid, dirty)
    host.change(pci=pci({**one_time, "resource_class": "PGPU"}))
    host.reshape({})
    assert host.provider(GPU).inventory["PGPU"]["reserved"] == 1
