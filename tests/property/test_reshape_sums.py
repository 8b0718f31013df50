"""A reshape loses nothing, invents nothing, overfills nothing, and can be undone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from compute_agent import errors
from compute_agent.virt.cpu_sets import CpuSets
from compute_agent.virt.driver import CellUse, InstanceDevices, MdevUse
from compute_agent.virt.fake.topology import MDEV_TYPE, MachineSize, fake_topology
from compute_agent.virt.layout import LayoutOptions
from compute_agent.virt.layout.options import GpuOptions, MdevTypeOptions
from tests.unit.virt.hosts import NAME, ROOT, Host, consumer, content, held_of, reported

ELSEWHERE = "99999999-0000-4000-8000-000000000000"
VGPU = GpuOptions(mdev_types=(MdevTypeOptions(MDEV_TYPE),))
Allocations = dict[str, dict[str, Any]]


@st.composite
def machines(draw: st.DrawFn) -> MachineSize:
    return MachineSize(
        cells=draw(st.integers(1, 4)),
        cpus_per_cell=draw(st.integers(1, 6)),
        memory_mib_per_cell=draw(st.integers(4, 40)) * 256,
        pages_2mib_per_cell=draw(st.sampled_from([0, 16, 128])),
        gpus=draw(st.integers(0, 3)),
        nics=0,
    )


@st.composite
def guests(draw: st.DrawFn, size: MachineSize) -> InstanceDevices | None:
    """What a guest really has; it need not agree with what placement says."""
    if draw(st.booleans()):
        return None
    cell = st.integers(0, size.cells - 1)
    uses = st.builds(CellUse, cell, st.integers(0, 4), st.integers(0, 512))
    cpu = st.integers(0, size.cells * size.cpus_per_cell - 1)
    return InstanceDevices(
        pinned_cpus=tuple(draw(st.sets(cpu, max_size=3))),
        cells=tuple(draw(st.lists(uses, max_size=2))),
        page_size_kib=draw(st.sampled_from([None, 2048])),
    )


@st.composite
def hosts(draw: st.DrawFn) -> tuple[Host, Allocations]:
    """A flat host with consumers on its root, its GPUs and elsewhere."""
    size = draw(machines())
    options = LayoutOptions(
        reserved_memory_mib=draw(st.sampled_from([0, 100])),
        gpu=VGPU,
        cpu_sets=draw(st.sampled_from([CpuSets(), CpuSets(shared_cpus=frozenset({0}))])),
    )
    host = reported(fake_topology(NAME, size), options)
    gpus = [p.uuid for p in content(host.tree) if "VGPU" in p.inventory]
    amounts = st.fixed_dictionaries(
        {},
        optional={
            "VCPU": st.integers(1, 6),
            "MEMORY_MB": st.integers(1, 3000),
            "DISK_GB": st.integers(1, 20),
        },
    )
    allocations: Allocations = {}
    for index in range(draw(st.integers(0, 6))):
        held: dict[str, Mapping[str, int]] = {}
        if on_root := draw(amounts):
            held[ROOT] = on_root
        if gpus and draw(st.booleans()):
            held[draw(st.sampled_from(gpus))] = {"VGPU": 1}
        if draw(st.booleans()):
            held[ELSEWHERE] = {"VCPU": 7}
        if held:
            uuid = f"consumer-{index}"
            allocations[uuid] = consumer(**held)
            if (devices := draw(guests(size))) is not None:
                host.driver.guests[uuid] = devices
    return host, allocations


def sums(allocations: Allocations, uuid: str) -> Counter[str]:
    """What a consumer holds by class on this host, CPUs of both kinds counted together."""
    total: Counter[str] = Counter()
    for provider, amounts in held_of(allocations[uuid]).items():
        if provider != ELSEWHERE:
            for resource_class, amount in amounts.items():
                total["CPU" if resource_class in ("VCPU", "PCPU") else resource_class] += amount
    return total


def assert_nothing_lost(before: Allocations, after: Allocations) -> None:
    assert after.keys() == before.keys()
    for uuid, record in after.items():
        assert sums(after, uuid) == sums(before, uuid)
        held = held_of(record)
        assert held.get(ELSEWHERE) == held_of(before[uuid]).get(ELSEWHERE)
        assert all(amounts and all(n > 0 for n in amounts.values()) for amounts in held.values())


def used(allocations: Allocations) -> Counter[tuple[str, str]]:
    return Counter(
        {
            (provider, rc): sum(
                held_of(record).get(provider, {}).get(rc, 0) for record in allocations.values()
            )
            for record in allocations.values()
            for provider, amounts in held_of(record).items()
            for rc in amounts
        }
    )


@given(hosts())
def test_flat_to_nested_keeps_every_sum_and_flat_again_gives_all_back(
    case: tuple[Host, Allocations],
) -> None:
    host, before = case
    flat = {p.uuid: p for p in content(host.tree)}
    host.change(is_nested=True)
    try:
        nested = host.reshape(before)
    except errors.ReshapeFailed as failure:
        # only legal when it says for whom there is no room
        if any(uuid in failure.error for uuid in before):
            return
        raise
    assert_nothing_lost(before, nested)
    for (provider, rc), amount in used(nested).items():
        if provider != ELSEWHERE and amount:
            assert rc in host.tree.data(provider).inventory
    tree = content(host.tree)
    assert content(host.update()) == tree

    host.change(is_nested=False)
    after = host.reshape(nested)
    assert_nothing_lost(before, after)
    assert {c: held_of(r) for c, r in after.items()} == {c: held_of(r) for c, r in before.items()}
    assert {p.uuid: p for p in content(host.tree)} == flat


@given(hosts())
def test_no_provider_is_ever_overfilled(
    case: tuple[Host, Allocations],
) -> None:
    host, before = case
    host.change(is_nested=True)
    try:
        nested = host.reshape(before)
    except errors.ReshapeFailed:
        return
    for (provider, rc), amount in used(nested).items():
        if provider in (ROOT, ELSEWHERE):
            continue
        record = host.tree.data(provider).inventory[rc]
        assert amount <= (record["total"] - record["reserved"]) * record["allocation_ratio"]


@given(hosts(), st.randoms(use_true_random=False))
def test_the_order_of_the_consumers_does_not_matter(
    case: tuple[Host, Allocations], random: Any
) -> None:
    host, before = case
    host.change(is_nested=True)
    shuffled = list(before.items())
    random.shuffle(shuffled)
    results = []
    for allocations in (before, dict(shuffled)):
        other = Host(host.driver.machine, host.driver.options)
        other.tree, other.driver.guests = host.tree, host.driver.guests
        try:
            results.append({c: held_of(r) for c, r in other.reshape(allocations).items()})
        except errors.ReshapeFailed as failure:
            results.append({"failed": {"error": {failure.error: 1}}})
    assert results[0] == results[1]


@given(hosts(), st.integers(0, 4))
def test_pinned_guests_change_the_kind_of_their_cpus_and_not_the_number(
    case: tuple[Host, Allocations], dedicated: int
) -> None:
    host, before = case
    online = [int(cpu) for cpu in host.driver.machine.online_cpus]
    assume(0 < dedicated < len(online))
    sets = CpuSets(frozenset(online[dedicated:]), frozenset(online[:dedicated]))
    host.change(cpu_sets=sets)
    after = host.reshape(before)
    assert_nothing_lost(before, after)
    for uuid, record in after.items():
        devices = host.driver.guests.get(uuid)
        pinned = len(devices.pinned_cpus) if devices else 0
        had = held_of(before[uuid]).get(ROOT, {}).get("VCPU", 0)
        assert held_of(record).get(ROOT, {}).get("PCPU", 0) == min(pinned, had)


@given(st.integers(1, 3), st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), max_size=5))
def test_vgpus_on_the_root_land_where_their_devices_are(count: int, mdevs: list[list[int]]) -> None:
    machine = fake_topology(NAME, MachineSize(gpus=count, nics=0))
    host = reported(machine, LayoutOptions(gpu=VGPU))
    inventory = host.provider().inventory
    host.tree.update_inventory(ROOT, {**inventory, "VGPU": {"total": 64}})
    before: Allocations = {}
    for index, parents in enumerate(mdevs):
        uuid = f"guest-{index}"
        addresses = [machine.gpus[parent % count].address for parent in parents]
        host.driver.guests[uuid] = InstanceDevices(
            mdevs=tuple(MdevUse(f"m{index}-{i}", a) for i, a in enumerate(addresses))
        )
        before[uuid] = consumer(**{ROOT: {"VGPU": len(parents)}})
    after = host.reshape(before)
    assert_nothing_lost(before, after)
    by_address = {g.address: host.provider(_gpu_name(g.address)).uuid for g in machine.gpus}
    for uuid, record in after.items():
        expected = Counter(by_address[m.parent] for m in host.driver.guests[uuid].mdevs)
        assert {p: a["VGPU"] for p, a in held_of(record).items()} == dict(expected)


def _gpu_name(address: str) -> str:
    return "_pci_" + address.replace(":", "_").replace(".", "_")


def test_the_sums_would_notice_a_lost_unit() -> None:
    before = {"c": consumer(**{ROOT: {"VCPU": 2}})}
    lost = {"c": consumer(**{ROOT: {"VCPU": 1}})}
    assert sums(before, "c") != sums(lost, "c")
