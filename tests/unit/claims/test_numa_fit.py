"""Cells of the host for the NUMA nodes of a guest."""

from __future__ import annotations

import pytest

from compute_agent.claims.host_cells import FreeCell, HostCell, cells_of, free_cells
from compute_agent.claims.numa_fit import (
    GuestNeeds,
    HostNetworks,
    NodeNeed,
    fit,
    shortage,
    spread,
)
from compute_agent.state.claim import ClaimedCell

NOWHERE = HostNetworks()


def cell(number: int, *, vcpus: int = 4, pinnable: int = 4, memory: int = 4096, **pages: int):
    """A free cell whose CPUs are numbered from 10 times its own number."""
    first = 10 * number
    return FreeCell(
        number,
        shared_cpus=tuple(range(first + 5, first + 9)),
        vcpus=vcpus,
        pinnable=tuple(range(first, first + pinnable)),
        memory_mib=memory,
        pages_mib={int(size[1:]): mib for size, mib in pages.items()},
    )


def needs(*nodes: NodeNeed, **more) -> GuestNeeds:
    return GuestNeeds(nodes, names_nodes=True, **more)


def chosen(asked: GuestNeeds, *cells: FreeCell, networks: HostNetworks = NOWHERE, **how):
    """The numbers of the cells, None where the nodes do not fit."""
    claimed = fit(asked, cells, networks, **how)
    return None if claimed is None else [cell.cell for cell in claimed]


def test_every_node_gets_a_cell_of_its_own_with_its_cpus_and_memory():
    claimed = fit(needs(NodeNeed(2, 1, 1024), NodeNeed(0, 4, 512)), [cell(0), cell(1)], NOWHERE)
    assert claimed == (
        ClaimedCell(0, 2, (5, 6, 7, 8), (0,), 1024),
        ClaimedCell(1, 0, (), (10, 11, 12, 13), 512),
    )


@pytest.mark.parametrize(
    "node",
    [NodeNeed(5, 0, 1), NodeNeed(0, 5, 1), NodeNeed(0, 0, 4097), NodeNeed(1, 1, 1, {2048})],
    ids=["shared CPUs", "pinned CPUs", "memory", "huge pages"],
)
def test_a_node_that_no_cell_alone_has_room_for_does_not_fit(node):
    assert chosen(needs(node), cell(0, vcpus=100), cell(1, vcpus=100)) is None
    assert "wanted on one cell" in shortage(node, [cell(0)])


def test_two_nodes_never_share_a_cell():
    two = needs(NodeNeed(1, 0, 1), NodeNeed(1, 0, 1))
    assert chosen(two, cell(0)) is None
    assert chosen(two, cell(0), cell(1)) == [0, 1]


def test_a_node_gives_way_where_another_fits_on_one_cell_only():
    small, large = NodeNeed(1, 0, 100), NodeNeed(1, 0, 4000)
    cells = cell(0, memory=4096), cell(1, memory=200)
    assert chosen(needs(small, large), *cells) == [1, 0]


def test_the_cell_with_the_most_room_is_taken_or_the_one_with_the_least_when_packing():
    cells = cell(0, memory=3000), cell(1, memory=4000), cell(2, memory=2000)
    need = needs(NodeNeed(1, 0, 1000))
    assert chosen(need, *cells) == [1]
    assert chosen(need, *cells, packing=True) == [2]
    assert chosen(needs(NodeNeed(1, 0, 2500)), *cells, packing=True) == [0]


def test_a_node_stays_on_the_cell_that_was_allocated_for_it():
    two = needs(NodeNeed(1, 0, 100), NodeNeed(1, 0, 100))
    assert chosen(two, cell(0), cell(1), bound_cells={0: 1}) == [1, 0]
    assert chosen(two, cell(0), cell(1), bound_cells={0: 1, 1: 1}) is None
    assert chosen(two, cell(0), cell(1), bound_cells={0: 2}) is None


def test_memory_is_in_the_largest_pages_that_hold_all_of_it_in_whole_pages():
    cells = [cell(0, memory=0, _2048=4096, _1048576=4096)]
    (claimed,) = fit(needs(NodeNeed(1, 0, 2048, frozenset({2048, 1048576}))), cells, NOWHERE)
    assert claimed.page_size_kib == 1048576
    (claimed,) = fit(needs(NodeNeed(1, 0, 1026, frozenset({2048, 1048576}))), cells, NOWHERE)
    assert claimed.page_size_kib == 2048
    assert fit(needs(NodeNeed(1, 0, 1025, frozenset({2048}))), cells, NOWHERE) is None


def test_one_of_the_cells_is_near_each_network_that_is_near_some_cell():
    networks = HostNetworks({"left": frozenset({0}), "any": frozenset()}, frozenset({1}))
    need = NodeNeed(1, 0, 1)
    cells = cell(0, memory=1000), cell(1, memory=2000)
    assert chosen(needs(need), *cells, networks=networks) == [1]
    left = needs(need, physnets=frozenset({"left", "any", "unknown"}))
    assert chosen(left, *cells, networks=networks) == [0]
    both = needs(need, physnets=frozenset({"left"}), needs_tunnel=True)
    assert chosen(both, *cells, networks=networks) is None
    spanning = needs(need, need, physnets=frozenset({"left"}), needs_tunnel=True)
    assert sorted(chosen(spanning, *cells, networks=networks)) == [0, 1]


def test_pinned_cpus_of_a_guest_that_named_no_nodes_lie_on_as_few_cells_as_possible():
    cells = cell(0, pinnable=1), cell(1, pinnable=3), cell(2, pinnable=2)
    assert [(choice.cell, choice.pinned_cpus) for choice in spread(NodeNeed(0, 4, 0), cells)] == [
        (1, (10, 11, 12)),
        (2, (20,)),
    ]
    assert spread(NodeNeed(0, 7, 0), cells) == ()


def test_many_nodes_that_are_alike_and_do_not_fit_are_refused_at_once():
    nodes = [NodeNeed(1, 0, 100)] * 8
    cells = [cell(number) for number in range(16)]
    networks = HostNetworks(tunnel_cells=frozenset({99}))
    assert chosen(needs(*nodes, needs_tunnel=True), *cells, networks=networks) is None


def test_what_is_free_is_what_others_and_the_host_do_not_have_times_the_overcommit():
    host = HostCell(0, (0, 1, 2, 3), (4, 5, 6), 1, 1000, {2048: 512})
    used = [
        ClaimedCell(0, vcpus=2, memory_mib=300),
        ClaimedCell(0, vcpus=1, memory_mib=256, page_size_kib=2048),
        ClaimedCell(1, vcpus=9, memory_mib=900),
    ]
    (free,) = free_cells([host], used, {5, 77}, {"VCPU": 4.0, "MEMORY_MB": 1.5})
    assert free == FreeCell(0, (0, 1, 2, 3), 9, (4, 6), 1200, {2048: 256})


@pytest.mark.parametrize("told", [None, "null", "[]", [{"id": 0}], [{"id": 0, "guests": None}]])
def test_a_driver_that_does_not_tell_what_guests_get_has_no_cells_to_choose(told):
    assert cells_of({"numa_topology": told}) == ()
