"""Claims by the planner: whole cores, near devices, memory apart from pages.

The host has two cells of 16 CPUs, two threads to a core, of which each gives 4 dedicated and 4
shared ones to guests. The port with 4 VFs and the GPU are on cell 0.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.claims.host_view import CellPolicy
from compute_agent.fitting.host import PlanOptions
from compute_agent.fitting.plan import Plan, Refusal
from compute_agent.request.pci_aliases import read_aliases
from compute_agent.state.claim import Claim
from compute_agent.tracker.status import StatusBoard
from compute_agent.virt.driver import CellUse, InstanceDevices, MemoryUse
from tests.unit.claims.claiming import ONE, ROOT, TWO, Host, claimed, flavor

THREE = "00000000-0000-0000-0000-000000000033"
FOUR = "00000000-0000-0000-0000-000000000044"
DEDICATED = {"cpu_policy": "dedicated"}


def cpus(claim: Claim) -> set[int]:
    return {int(unit.name) for unit in claim.units if unit.resource_class == "PCPU"}


@pytest.fixture(params=["flat", "nested"])
def host(request, tmp_path) -> Host:
    return Host(tmp_path, flat=request.param == "flat")


def cpus_of_cell(host: Host, number: int) -> str:
    is_flat = "PCPU" in host.tree.data(ROOT).inventory
    return ROOT if is_flat else host.tree.data(f"h_NUMA{number}").uuid


# -- cores ---------------------------------------------------------------------------------------


def test_whole_cores_are_given_while_there_are_and_halves_where_a_core_is_broken(host):
    provider = cpus_of_cell(host, 1)
    single = claimed(host, ONE, {provider: {"PCPU": 1}}, flavor(1, **DEDICATED))
    pair = claimed(host, TWO, {provider: {"PCPU": 2}}, flavor(2, **DEDICATED))
    assert {cpu // 2 for cpu in cpus(pair)}.isdisjoint({cpu // 2 for cpu in cpus(single)})
    assert len({cpu // 2 for cpu in cpus(pair)}) == 1
    other = claimed(host, THREE, {provider: {"PCPU": 1}}, flavor(1, **DEDICATED))
    assert {cpu // 2 for cpu in cpus(other)} == {cpu // 2 for cpu in cpus(single)}


def test_siblings_that_are_required_are_given_or_refused(host):
    provider = cpus_of_cell(host, 1)
    policy = {**DEDICATED, "cpu_thread_policy": "require"}
    for instance in (ONE, TWO):
        for other in range(2):
            single = f"{instance[:-2]}{other:02d}"
            claimed(host, single, {provider: {"PCPU": 1}}, flavor(1, **DEDICATED))
    pair = claimed(host, THREE, {provider: {"PCPU": 2}}, flavor(2, **policy))
    assert len({cpu // 2 for cpu in cpus(pair)}) == 1
    with pytest.raises(errors.ComputeResourcesUnavailable, match="whole cores"):
        claimed(host, FOUR, {cpus_of_cell(host, 0): {"PCPU": 3}}, flavor(3, **policy))


def test_threads_of_the_emulator_have_a_cpu_of_their_own(host):
    policy = {**DEDICATED, "cpu_thread_policy": "require", "emulator_threads_policy": "isolate"}
    claim = claimed(host, ONE, {cpus_of_cell(host, 1): {"PCPU": 3}}, flavor(2, **policy))
    assert len(cpus(claim)) == 3
    assert len(claim.cells) == 1


# -- memory --------------------------------------------------------------------------------------


def test_memory_in_huge_pages_is_not_given_to_guests_of_ordinary_memory(flat):
    flat.give_pages(30 * 512)  # 30 GiB of each cell
    ordinary = sum(cell["memory_mb"] for cell in flat.assigner.free("h")["cells"])
    half = ordinary // 2
    assert claimed(flat, ONE, {ROOT: {"VCPU": 1, "MEMORY_MB": half}}, flavor(1, half)).cells == ()
    spec = flavor(1, half + 100)
    with pytest.raises(errors.ComputeResourcesUnavailable, match="of ordinary memory"):
        claimed(flat, TWO, {ROOT: {"VCPU": 1, "MEMORY_MB": half + 100}}, spec)
    pinned = flavor(1, half + 100, **DEDICATED)
    with pytest.raises(errors.ComputeResourcesUnavailable, match="of ordinary memory"):
        claimed(flat, TWO, {ROOT: {"PCPU": 1, "MEMORY_MB": half + 100}}, pinned)
    pages = flavor(1, 1024, numa_nodes=1, mem_page_size="2MB")
    claim = claimed(flat, TWO, {ROOT: {"VCPU": 1, "MEMORY_MB": 1024}}, pages)
    assert claim.cells[0].page_size_kib == 2048


def test_memory_of_guests_without_a_claim_counts_as_it_is_seen(flat):
    ordinary = sum(cell["memory_mb"] for cell in flat.assigner.free("h")["cells"])
    memory = (MemoryUse(None, None, ordinary - 1000), MemoryUse(0, None, 600))
    flat.driver.spawn(TWO, devices=InstanceDevices(memory=memory))
    with pytest.raises(errors.ComputeResourcesUnavailable, match="of ordinary memory"):
        claimed(flat, ONE, {ROOT: {"VCPU": 1, "MEMORY_MB": 500}}, flavor(1, 500))
    claimed(flat, ONE, {ROOT: {"VCPU": 1, "MEMORY_MB": 250}}, flavor(1, 250))
    started = InstanceDevices(memory=(MemoryUse(None, None, 250),))
    flat.driver.spawn(ONE, devices=started)  # counts once
    assert claimed(flat, THREE, {ROOT: {"VCPU": 1, "MEMORY_MB": 150}}, flavor(1, 150))


def test_cpus_that_guests_without_a_claim_float_over_are_taken(flat):
    uses = CellUse(0, 17, 0), CellUse(1, 15, 0)  # of 4 CPUs 16 are shared
    flat.driver.spawn(TWO, devices=InstanceDevices(cells=uses, pinned_cpus=(4,)))
    with pytest.raises(errors.ComputeResourcesUnavailable, match=r"0: 0 shared .* 1: 1 shared"):
        claimed(flat, ONE, {ROOT: {"VCPU": 2}}, flavor(2, 0, numa_nodes=1))
    claimed(flat, ONE, {ROOT: {"VCPU": 1}}, flavor(1, 0, numa_nodes=1))


def test_pages_of_a_guest_are_taken_off_the_pool_that_they_are_of(flat):
    flat.give_pages(100)
    uses = (CellUse(0, 1, 100), CellUse(1, 1, 50))
    memory = (MemoryUse(0, 2048, 100), MemoryUse(1, 2048, 30), MemoryUse(1, None, 20))
    flat.driver.spawn(TWO, devices=InstanceDevices(cells=uses, memory=memory))
    spec = flavor(1, 102, numa_nodes=1, mem_page_size="2MB", pci_numa_affinity_policy="preferred")
    claim = claimed(flat, ONE, {ROOT: {"VCPU": 1, "MEMORY_MB": 102}}, spec)
    assert claim.cells[0].cell == 1
    with pytest.raises(errors.ComputeResourcesUnavailable, match=r"cell 1: .* 68 MiB in pages"):
        claimed(flat, THREE, {ROOT: {"VCPU": 1, "MEMORY_MB": 102}}, spec)


def test_pages_that_are_on_no_certain_cell_are_taken_off_the_cells_with_the_most(flat):
    flat.give_pages(100)
    floating = (MemoryUse(None, 2048, 250), MemoryUse(None, 1048576, 1024))
    uses = (CellUse(0, 1, 20),)
    flat.driver.spawn(
        TWO, devices=InstanceDevices(cells=uses, memory=(MemoryUse(0, 2048, 20), *floating))
    )
    spec = flavor(1, 132, numa_nodes=1, mem_page_size="2MB")
    with pytest.raises(errors.ComputeResourcesUnavailable, match=r"130 MiB in.* 1: .* 0 MiB in"):
        claimed(flat, ONE, {ROOT: {"VCPU": 1, "MEMORY_MB": 132}}, spec)


# -- devices -------------------------------------------------------------------------------------

ALIASES = read_aliases(
    f'{{"name": "{name}", "resource_class": "CUSTOM_VF", "numa_policy": "{policy}"}}'
    for name, policy in (("near", "required"), ("perhaps", "preferred"), ("old", "legacy"))
)


@pytest.mark.parametrize("name", ["near", "old", "perhaps"])
def test_cpus_are_on_the_cell_of_the_device_as_its_alias_wants(tmp_path, name):
    host = Host(tmp_path, flat=True, policy=CellPolicy(aliases=ALIASES))
    port = host.provider("CUSTOM_VF")
    spec = flavor(3, alias=f"{name}:1", **DEDICATED)
    claim = claimed(host, ONE, {ROOT: {"PCPU": 3}, port: {"CUSTOM_VF": 1}}, spec)
    assert claim.cells[0].cell == 0
    second = {ROOT: {"PCPU": 3}, port: {"CUSTOM_VF": 1}}
    if name == "perhaps":
        assert claimed(host, TWO, second, spec).cells[0].cell == 1
    else:
        # three are left on the other cell, and one beside the device: the guest lies on both
        assert {cell.cell for cell in claimed(host, TWO, second, spec).cells} == {0, 1}
        named = flavor(2, alias=f"{name}:1", numa_nodes=1, **DEDICATED)
        third = {ROOT: {"PCPU": 2}, port: {"CUSTOM_VF": 1}}
        with pytest.raises(errors.ComputeResourcesUnavailable, match="CUSTOM_VF near its cells"):
            claimed(host, THREE, third, named)


def test_a_setting_of_the_flavor_is_for_every_device_and_goes_before_the_alias(tmp_path):
    host = Host(tmp_path, flat=True, policy=CellPolicy(aliases=ALIASES))
    port = host.provider("CUSTOM_VF")
    claimed(host, ONE, {ROOT: {"PCPU": 3}, port: {"CUSTOM_VF": 1}}, flavor(3, **DEDICATED))
    held = {ROOT: {"PCPU": 3}, port: {"CUSTOM_VF": 1}}
    policy = {**DEDICATED, "pci_numa_affinity_policy": "required"}
    spec = flavor(3, alias="perhaps:1", numa_nodes=1, **policy)
    with pytest.raises(errors.ComputeResourcesUnavailable, match="policy required"):
        claimed(host, TWO, held, spec)


def test_an_instance_that_gets_a_device_keeps_its_cpus(host):
    provider, port = cpus_of_cell(host, 0), host.provider("CUSTOM_VF")
    claimed(host, TWO, {provider: {"PCPU": 2}})
    first = claimed(host, ONE, {provider: {"PCPU": 2}})
    host.book.drop(TWO)
    more = claimed(host, ONE, {provider: {"PCPU": 2}, port: {"CUSTOM_VF": 1}})
    assert cpus(more) == cpus(first)
    assert more.cells == first.cells
    assert len(more.units) == 3
    assert claimed(host, ONE, {provider: {"PCPU": 2}}).units == first.units, "and gives it back"


# -- what is shown -------------------------------------------------------------------------------


def test_a_request_is_tried_out_on_the_host_and_nothing_is_given(tmp_path):
    for name in ("flat", "nested"):
        (tmp_path / name).mkdir()
        host = Host(tmp_path / name, flat=name == "flat", policy=CellPolicy(aliases=ALIASES))
        free, answer = host.assigner.try_out(flavor(2, 512, alias="near:2", **DEDICATED), "h")
        assert isinstance(answer, Plan)
        assert answer.parts[0].cell == 0
        assert [len(given.units) for given in answer.given] == [1, 1]
        assert {device.resource_class for device in free.devices} >= {"CUSTOM_VF", "VGPU"}
        _free, refused = host.assigner.try_out(flavor(9, 512, **DEDICATED), "h")
        assert isinstance(refused, Refusal)
        assert host.book.claims() == []


def test_a_claim_that_runs_for_longer_than_a_second_is_shown_with_its_stage(flat):
    shown = []
    now = [1000.0]
    flat.book.running.clock = lambda: now[0]
    asked = flat.report.get_allocs_for_consumer

    def slow(consumer: str) -> dict[str, Any]:
        now[0] += 5
        shown.extend(flat.book.running.long())
        return asked(consumer)

    flat.report.get_allocs_for_consumer = slow
    claimed(flat, ONE, {ROOT: {"VCPU": 1}})
    assert shown == [{"instance": ONE, "stage": "asks placement what it holds", "since": 1000.0}]
    assert flat.book.running.long() == []


def test_a_claim_whose_fit_is_not_decided_is_refused_by_name_logged_and_counted(flat, caplog):
    board = StatusBoard("h")
    flat.assigner.on_undecided = board.count_undecided_claim
    cells = {f"numa_cpus.{n}": n for n in range(2)} | {f"numa_mem.{n}": 512 for n in range(2)}
    wanted = {ROOT: {"VCPU": 2, "MEMORY_MB": 1024}}
    options = PlanOptions(budget=0, limit=0)
    flat.assigner.policy = replace(flat.assigner.policy, options=options)
    with pytest.raises(errors.FitUndecided, match=f"Node h gives {ONE} nothing.* 0 steps"):
        claimed(flat, ONE, wanted, flavor(2, 1024, numa_nodes=2, **cells))
    assert board.counters().undecided_claims == 1
    assert ONE in caplog.text
    assert flat.book.claims() == []
