"""The plan of a flat host, and what a scheduler claims of a nested host that is the same.

The flat host is given to the planner as an agent does; the nested one is asked of a placement, and
its candidates and summaries are all that the scheduler knows.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compute_agent.fitting.guest import Guest, Node, Wish
from compute_agent.fitting.host import Cell, Device, Host
from compute_agent.fitting.plan import Refusal
from compute_agent.fitting.planner import plan
from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.errors import NoValidHost
from tests.functional.either_placement import ours
from tests.functional.scheduler.moving import World
from tests.unit.scheduler.specs import spec

POLICIES = ("", "required", "preferred")
cells_of_a_host = st.lists(
    st.tuples(
        st.integers(1, 4),  # CPUs to float
        st.integers(1, 4),  # MiB
        st.integers(0, 2),  # vGPUs
        st.integers(0, 1),  # the group of links of its card
    ),
    min_size=1,
    max_size=4,
)


@dataclass(frozen=True)
class GuestDemand:
    """A guest of one node or two equal ones, named or not, and its vGPUs."""

    nodes: int
    names_nodes: bool
    vcpu: int
    memory_mb: int
    vgpus: int
    policy: str

    def spec(self, mark: str) -> RequestSpec:
        extra = {f"resources_G{number}:VGPU": "1" for number in range(self.vgpus)}
        if self.names_nodes:
            extra["hw:numa_nodes"] = str(self.nodes)
        if self.policy:
            extra["hw:pci_numa_affinity_policy"] = self.policy
        return spec(
            {**extra, "group_policy": "none"},
            vcpus=self.vcpu * self.nodes,
            memory_mb=self.memory_mb * self.nodes,
            root_gb=0,
            root_required=frozenset({mark}),
        )

    def guest(self) -> Guest:
        return Guest(
            (Node(self.vcpu, memory_mib=self.memory_mb),) * self.nodes,
            names_nodes=self.names_nodes,
            wishes=tuple(
                Wish(f"_G{number}", "VGPU", nearness=self.policy) for number in range(self.vgpus)
            ),
        )


@st.composite
def asked_for(draw: st.DrawFn) -> GuestDemand:
    names_nodes = draw(st.booleans())
    vgpus = draw(st.integers(0, 2))
    return GuestDemand(
        nodes=draw(st.integers(1, 2)) if names_nodes else 1,
        names_nodes=names_nodes,
        vcpu=draw(st.integers(1, 5)),
        memory_mb=draw(st.integers(1, 5)),
        vgpus=vgpus,
        policy=draw(st.sampled_from(POLICIES)) if vgpus else "",
    )


@pytest.fixture(scope="module")
def placement(tmp_path_factory: pytest.TempPathFactory) -> InProcessTransport:
    return InProcessTransport(ours(tmp_path_factory.mktemp("placement")))


def host_of(
    world: World, cells: list[tuple[int, int, int, int]], mark: str
) -> tuple[Host, list[str]]:
    """Make a nested host; return the same flat, and the providers of its cells by number."""
    world.provider("host", {}, "COMPUTE_NODE", mark)
    cards: dict[str, tuple[str, int, str]] = {}
    sizes: dict[str, tuple[int, int]] = {}
    for number, (vcpu, memory_mb, vgpu, group) in enumerate(cells):
        own = {"VCPU": vcpu, "MEMORY_MB": memory_mb}
        cell = world.provider(f"cell{number}", own, "HW_NUMA_ROOT", parent="host")
        sizes[cell] = vcpu, memory_mb
        if vgpu:
            links = f"CUSTOM_NVLINK_GROUP_{group}"
            card = world.provider(f"card{number}", {"VGPU": vgpu}, links, parent=f"cell{number}")
            cards[card] = cell, vgpu, links
    # agents number cells; of providers that none made the order of their uuids is the number
    numbers = {cell: number for number, cell in enumerate(sorted(sizes))}
    host = Host(
        tuple(
            Cell(number, vcpus=sizes[cell][0], memory_mib=sizes[cell][1])
            for cell, number in numbers.items()
        ),
        tuple(
            Device(card, "VGPU", vgpu, cell=numbers[cell], link_group=links)
            for card, (cell, vgpu, links) in sorted(cards.items())
        ),
    )
    return host, list(numbers)


@given(cells_of_a_host, asked_for())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_nested_host_gives_through_placement_what_a_flat_one_plans(
    placement: InProcessTransport,
    tmp_path: Path,
    cells: list[tuple[int, int, int, int]],
    asked: GuestDemand,
) -> None:
    world = World(placement, tmp_path / "journal")
    for group in (0, 1):
        world.call("PUT", f"/traits/CUSTOM_NVLINK_GROUP_{group}")
    mark = f"CUSTOM_T{uuid.uuid4().hex[:12].upper()}"
    host, providers = host_of(world, cells, mark)
    flat = plan(host, asked.guest())
    consumer = str(uuid.uuid4())
    try:
        world.scheduler().select_destinations(asked.spec(mark), [consumer])
    except NoValidHost:
        # placement lays no guest over several cells that something must be near
        is_spread = not isinstance(flat, Refusal) and len(flat.parts) > asked.nodes
        assert isinstance(flat, Refusal) or (is_spread and asked.vgpus)
        return
    assert not isinstance(flat, Refusal)
    record: Any = world.call("GET", f"/allocations/{consumer}")
    held = {rp: entry["resources"] for rp, entry in record["allocations"].items()}
    planned: dict[str, dict[str, int]] = {}
    for part in flat.parts:
        amounts = {"VCPU": part.vcpus, "MEMORY_MB": part.memory_mib}
        planned[providers[part.cell]] = {name: n for name, n in amounts.items() if n}
    for given_unit in flat.given:
        card = planned.setdefault(given_unit.device, {})
        card["VGPU"] = card.get("VGPU", 0) + 1
    assert held == planned
