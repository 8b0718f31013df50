"""Cells for the NUMA nodes of a guest, against trying out every way there is."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from compute_agent.claims.host_cells import FreeCell
from compute_agent.claims.numa_fit import GuestNeeds, HostNetworks, NodeNeed, fit

small = st.integers(0, 3)
# every field: of a named tuple, those with defaults are drawn too
ordinary_memory = st.just(frozenset())
nodes = st.lists(st.builds(NodeNeed, small, small, small, ordinary_memory), min_size=1, max_size=4)
rooms = st.lists(st.tuples(small, small, small), max_size=5)
near = st.frozensets(st.integers(0, 4), max_size=3)


def has_room(cell: FreeCell, node: NodeNeed) -> bool:
    return (
        cell.vcpus >= node.vcpus
        and len(cell.pinnable) >= node.pinned_count
        and cell.memory_mib >= node.memory_mib
    )


@given(nodes, rooms, near, near, st.booleans(), st.dictionaries(small, small, max_size=2))
def test_nodes_fit_if_and_only_if_some_way_to_put_them_on_cells_works(
    wanted, free, physnet, tunneled, packing, bound
):
    cells = [
        FreeCell(number, (0, 1, 2, 3), vcpus, tuple(range(pinnable)), memory)
        for number, (vcpus, pinnable, memory) in enumerate(free)
    ]
    networks = HostNetworks({"net": physnet}, tunneled)
    needs = GuestNeeds(
        tuple(wanted), names_nodes=True, physnets=frozenset({"net"}), needs_tunnel=True
    )
    found = fit(needs, cells, networks, packing=packing, bound_cells=bound)

    def works(way: tuple[FreeCell, ...]) -> bool:
        numbers = {cell.id for cell in way}
        return (
            all(has_room(cell, node) for cell, node in zip(way, wanted, strict=True))
            and all(bound.get(i, cell.id) == cell.id for i, cell in enumerate(way))
            and all(not group or group & numbers for group in (physnet, tunneled))
        )

    ways = {
        tuple(cell.id for cell in way) for way in permutations(cells, len(wanted)) if works(way)
    }
    if found is None:
        assert not ways
    else:
        assert tuple(claimed.cell for claimed in found) in ways
        assert [len(claimed.pinned_cpus) for claimed in found] == [n.pinned_count for n in wanted]
