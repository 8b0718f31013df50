"""Classes of any providers under other names, against an oracle that only rewrites names."""

from __future__ import annotations

import copy
import json
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from compute_agent import errors
from compute_agent.tracker.passes import reshape_check
from compute_agent.virt.cpu_sets import CpuSets
from compute_agent.virt.fake.topology import MDEV_TYPE, MachineSize, fake_topology
from compute_agent.virt.layout import LayoutOptions
from compute_agent.virt.layout.device_spec import parse_device_specs
from compute_agent.virt.layout.options import GpuOptions, MdevTypeOptions, PciOptions
from tests.unit.virt.hosts import NAME, ROOT, Host, consumer, content, held_of, reported

Names = dict[tuple[str, str], str]
"""Provider and old class -> new class."""

CLASSES = ("CUSTOM_A", "CUSTOM_B", "PGPU")
STANDARD = ("VCPU", "PCPU", "MEMORY_MB", "SRIOV_NET_VF", "VGPU")


def options(*, nested: bool, vfs: str | None, vgpus: str) -> LayoutOptions:
    specs = [json.dumps({"product_id": "1889", "resource_class": vfs})] if vfs else []
    return LayoutOptions(
        is_nested=nested,
        reserved_memory_mib=0,
        cpu_sets=CpuSets(frozenset({0, 1, 8, 9}), frozenset({2, 3, 10, 11})),
        gpu=GpuOptions(mdev_types=(MdevTypeOptions(MDEV_TYPE, resource_class=vgpus),)),
        pci=PciOptions(bool(vfs), parse_device_specs(specs, report=True)),
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[Host, dict[str, dict[str, Any]], Names]:
    """A host whose classes are about to change their names, its allocations, and which do."""
    nested = draw(st.booleans())
    vfs_before, vfs_after = draw(
        st.one_of(
            st.just((None, None)),
            st.tuples(st.sampled_from(CLASSES), st.sampled_from(CLASSES)),
        )
    )
    vgpus = [draw(st.sampled_from(["VGPU", "CUSTOM_BIG", "CUSTOM_VGPU"])) for _ in range(2)]
    size = MachineSize(
        cells=2,
        cpus_per_cell=8,
        memory_mib_per_cell=4096,
        gpus=draw(st.integers(0, 2)),
        nics=draw(st.integers(0, 2)),
        pfs_per_nic=1,
        vfs_per_pf=draw(st.integers(1, 4)),
    )
    host = reported(
        fake_topology(NAME, size), options(nested=nested, vfs=vfs_before, vgpus=vgpus[0])
    )
    names: Names = {}
    for provider in content(host.tree):
        for rc in provider.inventory:
            if rc == vgpus[0]:
                names[provider.uuid, rc] = vgpus[1]
            elif rc == vfs_before:
                names[provider.uuid, rc] = str(vfs_after)
    custom = draw(st.sets(st.sampled_from(STANDARD)))
    for provider in content(host.tree):
        records = dict(provider.inventory)
        for rc in sorted(custom & records.keys()):
            if names.get((provider.uuid, rc), rc) == rc:  # one new name at a time
                records[f"CUSTOM_{rc}"] = records.pop(rc)
                names[provider.uuid, f"CUSTOM_{rc}"] = rc
        host.tree.update_inventory(provider.uuid, records)
    units = [
        (p.uuid, rc, int(record["total"]))
        for p in content(host.tree)
        for rc, record in p.inventory.items()
    ]
    free = {(uuid, rc): total for uuid, rc, total in units}
    allocations = {}
    for number in range(draw(st.integers(1, 4))):
        held: dict[str, Counter[str]] = {}
        for uuid, rc, _total in draw(st.lists(st.sampled_from(units), min_size=1, max_size=4)):
            amount = min(free[uuid, rc], draw(st.integers(1, 2)))
            if amount:
                free[uuid, rc] -= amount
                held.setdefault(uuid, Counter())[rc] += amount
        if held:
            allocations[f"consumer-{number}"] = consumer(**held)
    host.driver.options = options(nested=nested, vfs=vfs_after, vgpus=vgpus[1])
    return host, allocations, {key: new for key, new in names.items() if key[1] != new}


def rewritten(allocations: dict[str, dict[str, Any]], names: Names) -> dict[str, Any]:
    """The oracle: every amount where it was, under the name that its class has now."""
    result: dict[str, dict[str, Counter[str]]] = {}
    for name, record in allocations.items():
        places = result.setdefault(name, {})
        for uuid, amounts in held_of(record).items():
            for rc, amount in amounts.items():
                places.setdefault(uuid, Counter())[names.get((uuid, rc), rc)] += amount
    return {name: {u: dict(a) for u, a in places.items()} for name, places in result.items()}


@given(cases())
def test_every_amount_is_under_the_name_that_its_class_has_now(
    case: tuple[Host, dict[str, dict[str, Any]], Names],
) -> None:
    host, before, names = case
    base = host.tree
    totals = Counter(
        {
            (p.uuid, names.get((p.uuid, rc), rc)): int(record["total"])
            for p in content(base)
            for rc, record in p.inventory.items()
        }
    )
    due = False
    try:
        host.update()
    except errors.ReshapeNeeded:
        due = True
    assert due is bool(names)
    after = host.reshape(copy.deepcopy(before)) if due else before
    assert {name: held_of(record) for name, record in after.items()} == rewritten(before, names)
    reshape_check.check(base, host.tree, before, after, ROOT)
    assert totals == Counter(
        {
            (p.uuid, rc): int(record["total"])
            for p in content(host.tree)
            for rc, record in p.inventory.items()
        }
    )
    host.update()
