"""The NUMA cells that a claim gives to the nodes of a guest, with and without cells in placement.

The host has two cells of 16 CPUs, of which each gives 4 dedicated and 4 shared ones to guests.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.claims.host_view import CellPolicy, HostNetworks
from compute_agent.fitting.host import PlanOptions
from compute_agent.state.claim import ClaimedCell
from compute_agent.virt.driver import CellUse, InstanceDevices
from tests.unit.claims.claiming import MOVE, ONE, ROOT, TWO, Host, claimed, flavor

DEDICATED = ({4, 5, 6, 7}, {20, 21, 22, 23})
SHARED = ((0, 1, 2, 3), (16, 17, 18, 19))
THREE = "00000000-0000-0000-0000-000000000033"


def cell(host: Host, number: int) -> str:
    return host.tree.data(f"h_NUMA{number}").uuid


# -- cells in placement ------------------------------------------------------------------------


def test_each_node_of_a_guest_gets_the_cell_that_its_group_is_mapped_to(host):
    both = {cell(host, n): {"PCPU": 2, "MEMORY_MB": 512} for n in (0, 1)}
    claim = claimed(
        host,
        ONE,
        both,
        flavor(4, 1024, numa_nodes=2, cpu_policy="dedicated"),
        {"_NUMA0": [cell(host, 1)], "_NUMA1": [cell(host, 0)]},
    )
    assert [(c.cell, c.pinned_cpus, c.memory_mib) for c in claim.cells] == [
        (1, (20, 21), 512),
        (0, (4, 5), 512),
    ]
    assert {unit.name for unit in claim.units} == {"4", "5", "20", "21"}


def test_nodes_that_do_not_fit_on_what_was_allocated_of_each_cell_are_refused(host):
    lopsided = {
        cell(host, 0): {"PCPU": 3, "MEMORY_MB": 512},
        cell(host, 1): {"PCPU": 1, "MEMORY_MB": 512},
    }
    spec = flavor(4, 1024, numa_nodes=2, cpu_policy="dedicated")
    with pytest.raises(errors.ComputeResourcesUnavailable, match=r"2 NUMA node\(s\) do not fit"):
        claimed(host, ONE, lopsided, spec)
    with pytest.raises(errors.ComputeResourcesUnavailable, match="do not fit"):
        claimed(host, ONE, {cell(host, 0): {"PCPU": 4, "MEMORY_MB": 1024}}, spec)
    assert host.book.claims() == []


def test_without_groups_nodes_are_matched_with_what_was_allocated(host):
    held = {
        cell(host, 0): {"VCPU": 1, "MEMORY_MB": 256},
        cell(host, 1): {"VCPU": 3, "MEMORY_MB": 768},
    }
    asked = {"numa_nodes": 2, "numa_cpus.0": "0-2", "numa_cpus.1": "3"}
    asked |= {"numa_mem.0": 768, "numa_mem.1": 256}
    claim = claimed(host, ONE, held, flavor(4, 1024, **asked))
    assert [(c.cell, c.vcpus, c.shared_cpus) for c in claim.cells] == [
        (1, 3, SHARED[1]),
        (0, 1, SHARED[0]),
    ]


def test_a_guest_that_named_no_nodes_gets_what_was_allocated_of_each_cell(host):
    held = {
        cell(host, 0): {"VCPU": 1, "MEMORY_MB": 256},
        cell(host, 1): {"VCPU": 3, "MEMORY_MB": 768},
        host.provider("VGPU"): {"VGPU": 1},
    }
    claim = claimed(host, ONE, held, flavor(4, 1024))
    assert [(c.cell, c.vcpus, c.memory_mib) for c in claim.cells] == [(0, 1, 256), (1, 3, 768)]


def test_huge_pages_are_those_of_the_cell_of_the_node(tmp_path):
    host = Host(tmp_path)
    host.give_pages(512)
    pages = host.tree.data("h_NUMA0_PAGES2048").uuid
    held = {cell(host, 0): {"VCPU": 2}, pages: {"MEMORY_MB": 64}}
    spec = flavor(2, 64, numa_nodes=1, mem_page_size="2MB")
    (taken_cell,) = claimed(host, ONE, held, spec).cells
    assert (taken_cell.cell, taken_cell.memory_mib, taken_cell.page_size_kib) == (0, 64, 2048)
    apart = {
        cell(host, 1): {"VCPU": 2},
        host.tree.data("h_NUMA0_PAGES2048").uuid: {"MEMORY_MB": 64},
    }
    with pytest.raises(errors.ComputeResourcesUnavailable, match="in pages of 2048 KiB"):
        claimed(host, TWO, apart, spec)


# -- cells that only the host knows of -----------------------------------------------------------


def test_pinned_cpus_of_each_node_are_of_one_cell(flat):
    spec = flavor(4, 1024, numa_nodes=2, cpu_policy="dedicated")
    claim = claimed(flat, ONE, {ROOT: {"PCPU": 4, "MEMORY_MB": 1024}}, spec)
    assert [set(c.pinned_cpus) <= DEDICATED[c.cell] for c in claim.cells] == [True, True]
    assert {c.cell for c in claim.cells} == {0, 1}
    assert {unit.name for unit in claim.units} == {
        str(cpu) for c in claim.cells for cpu in c.pinned_cpus
    }


def test_a_guest_that_floats_has_no_cells(flat):
    claim = claimed(flat, ONE, {ROOT: {"VCPU": 12, "MEMORY_MB": 512}}, flavor(12, 512))
    assert claim.cells == ()


def test_memory_that_guests_have_of_a_cell_is_not_free(flat):
    (free, _other) = flat.assigner.free("h")["cells"]
    half = free["memory_mb"] // 2 + 1
    use = CellUse(0, vcpus=1, memory_mib=half)
    flat.driver.spawn(THREE, devices=InstanceDevices(cells=(use,)))
    spec = flavor(1, half, numa_nodes=1)
    held = {ROOT: {"VCPU": 1, "MEMORY_MB": half}}
    assert claimed(flat, ONE, held, spec).cells[0].cell == 1
    with pytest.raises(errors.ComputeResourcesUnavailable, match="do not fit"):
        claimed(flat, TWO, held, spec)
    flat.book.drop(ONE)
    assert claimed(flat, TWO, held, spec).cells[0].cell == 1


def test_a_guest_that_runs_on_what_it_was_given_counts_once_in_its_cell(flat):
    spec = flavor(1, 512, numa_nodes=1)
    (taken_cell,) = claimed(flat, ONE, {ROOT: {"VCPU": 1, "MEMORY_MB": 512}}, spec).cells
    before = flat.assigner.free("h")["cells"]
    use = CellUse(taken_cell.cell, vcpus=1, memory_mib=512)
    flat.driver.spawn(ONE, devices=InstanceDevices(cells=(use,)))
    assert flat.assigner.free("h")["cells"] == before


@pytest.mark.parametrize(("packing", "expected"), [(False, [0, 1]), (True, [0, 0])])
def test_guests_are_spread_over_cells_or_packed_as_configured(tmp_path, packing, expected):
    host = Host(
        tmp_path,
        flat=True,
        policy=CellPolicy(options=PlanOptions(packing=packing, spare_device_cells=False)),
    )
    spec = flavor(1, 512, numa_nodes=1)
    held = {ROOT: {"VCPU": 1, "MEMORY_MB": 512}}
    assert [
        claimed(host, instance, held, spec).cells[0].cell for instance in (ONE, TWO)
    ] == expected


def test_a_guest_is_near_its_network_or_refused(tmp_path):
    near = HostNetworks({"left": frozenset({1})}, frozenset({0}))
    host = Host(tmp_path, flat=True, policy=CellPolicy(near))
    spec = flavor(4, 512, numa_nodes=1) | {"requested_networks": [{"physnet": "left"}]}
    held = {ROOT: {"VCPU": 4, "MEMORY_MB": 512}}
    assert claimed(host, ONE, held, spec).cells[0].cell == 1
    both = spec | {"requested_networks": [{"physnet": "left"}, {"tunneled": True}]}
    with pytest.raises(errors.ComputeResourcesUnavailable, match=r"\[neutron\]physnets"):
        claimed(host, TWO, held, both)


def test_asked_again_a_claim_gives_the_same_cells_and_a_move_other_ones(flat):
    spec = flavor(2, 512, numa_nodes=1, cpu_policy="dedicated")
    held = {ROOT: {"PCPU": 2, "MEMORY_MB": 512}}
    first = claimed(flat, ONE, held, spec)
    assert claimed(flat, ONE, held, spec) == first
    moved = claimed(flat, ONE, held, spec, migration=MOVE)
    assert not set(moved.units) & set(first.units)
    assert flat.book.drop(ONE)
    assert replace(flat.book.claims()[0], migration="") == first


def test_cells_survive_a_restart(flat):
    spec = flavor(2, 512, numa_nodes=1, cpu_policy="dedicated")
    claim = claimed(flat, ONE, {ROOT: {"PCPU": 2, "MEMORY_MB": 512}}, spec)
    flat.restart()
    assert flat.book.claims() == [claim]
    assert isinstance(claim.cells[0], ClaimedCell)


def test_a_flavor_may_name_pcpu_outright(flat):
    spec = flavor(2, 512, numa_nodes=1)
    (taken_cell,) = claimed(flat, ONE, {ROOT: {"PCPU": 2, "MEMORY_MB": 512}}, spec).cells
    assert len(taken_cell.pinned_cpus) == 2


def test_a_host_without_dedicated_cpus_may_have_given_shared_ones(flat):
    spec = flavor(2, 512, numa_nodes=1, emulator_threads_policy="isolate", cpu_policy="dedicated")
    (taken_cell,) = claimed(flat, ONE, {ROOT: {"VCPU": 3, "MEMORY_MB": 512}}, spec).cells
    assert (taken_cell.vcpus, taken_cell.pinned_cpus) == (3, ())


def test_another_number_of_cpus_than_was_allocated_is_refused(flat):
    with pytest.raises(errors.ComputeResourcesUnavailable, match=r"4 shared .* 3 VCPU and 0 PCPU"):
        claimed(flat, ONE, {ROOT: {"VCPU": 3}}, flavor(4, 512, numa_nodes=1))


def test_a_flavor_that_cannot_be_read_names_the_setting(flat):
    with pytest.raises(errors.InvalidInput, match="hw:numa_nodes"):
        claimed(flat, ONE, {ROOT: {"VCPU": 3}}, flavor(3, 512, numa_nodes="many"))


# -- what is announced ---------------------------------------------------------------------------


@pytest.mark.parametrize("is_flat", [True, False])
def test_what_is_free_of_each_cell_and_its_networks_are_announced(tmp_path, is_flat):
    near = HostNetworks({"left": frozenset({0})}, frozenset({1}))
    host = Host(tmp_path, flat=is_flat, policy=CellPolicy(near))
    left, right = host.assigner.free("h")["cells"]
    assert (left["physnets"], left["tunneled"]) == (["left"], False)
    assert (right["physnets"], right["tunneled"]) == ([], True)
    assert (left["vcpu"], left["pcpu"]) == (4, 4)
    spec = flavor(3, 512, numa_nodes=1, cpu_policy="dedicated")
    provider = ROOT if is_flat else cell(host, 1)
    claimed(host, ONE, {provider: {"PCPU": 3, "MEMORY_MB": 512}}, spec)
    after = host.assigner.free("h")["cells"][1]
    assert (after["pcpu"], after["memory_mb"]) == (1, right["memory_mb"] - 512)
