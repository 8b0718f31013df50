"""The plan of a flat host, and what a scheduler claims of a nested host that is the same.

The flat host is given to the planner as an agent does; the nested one is asked of a placement, and
its candidates, its summaries and what its agent announces are all that the scheduler knows.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compute_agent.fitting.announced import document
from compute_agent.fitting.guest import Guest, Node, Wish
from compute_agent.fitting.host import Cell, Core, Device, Host
from compute_agent.fitting.plan import Refusal
from compute_agent.fitting.planner import plan
from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.provider_tree.provider import child_uuid
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.errors import NoValidHost
from compute_agent.scheduler.fleet.announcements import Announcements
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
        st.integers(0, 2),  # whole cores of two threads
        st.integers(0, 2),  # cores of which one thread is taken
        st.sampled_from((12, 21)),  # the distance to others
    ),
    min_size=1,
    max_size=4,
)


@dataclass(frozen=True)
class GuestDemand:
    """A guest of one node or two equal ones, named or not, and its vGPUs.

    :ivar threads: the policy of a guest whose CPUs are pinned; None: they float.
    """

    nodes: int
    names_nodes: bool
    vcpu: int
    memory_mb: int
    vgpus: int
    policy: str
    threads: str | None

    def spec(self, mark: str) -> RequestSpec:
        extra = {f"resources_G{number}:VGPU": "1" for number in range(self.vgpus)}
        if self.names_nodes:
            extra["hw:numa_nodes"] = str(self.nodes)
        if self.policy:
            extra["hw:pci_numa_affinity_policy"] = self.policy
        if self.threads is not None:
            extra["hw:cpu_policy"] = "dedicated"
            extra["hw:cpu_thread_policy"] = self.threads
        return spec(
            {**extra, "group_policy": "none"},
            vcpus=self.vcpu * self.nodes,
            memory_mb=self.memory_mb * self.nodes,
            root_gb=0,
            root_required=frozenset({mark}),
        )

    def guest(self) -> Guest:
        is_pinned = self.threads is not None
        node = Node(0 if is_pinned else self.vcpu, self.vcpu if is_pinned else 0, self.memory_mb)
        return Guest(
            (node,) * self.nodes,
            threads=self.threads or "",
            names_nodes=self.names_nodes,
            wishes=tuple(
                Wish(f"_G{number}", "VGPU", nearness=self.policy) for number in range(self.vgpus)
            ),
        )


@st.composite
def asked_for(draw: st.DrawFn) -> GuestDemand:
    names_nodes = draw(st.booleans())
    vgpus = draw(st.integers(0, 2))
    threads = draw(st.sampled_from((None, "prefer", "require")))
    return GuestDemand(
        nodes=draw(st.integers(1, 2)) if names_nodes else 1,
        names_nodes=names_nodes,
        vcpu=draw(st.integers(1, 2)) * 2 if threads == "require" else draw(st.integers(1, 5)),
        memory_mb=draw(st.integers(1, 5)),
        vgpus=vgpus,
        policy=draw(st.sampled_from(POLICIES)) if vgpus else "",
        threads=threads,
    )


@pytest.fixture(scope="module")
def placement(tmp_path_factory: pytest.TempPathFactory) -> InProcessTransport:
    return InProcessTransport(ours(tmp_path_factory.mktemp("placement")))


def host_of(
    world: World, cells: list[tuple[int, ...]], mark: str
) -> tuple[Host, str, dict[int, str]]:
    """Make a nested host; return the same flat, its root, and the providers of its cells."""
    root = world.provider("host", {}, "COMPUTE_NODE", mark)
    providers: dict[int, str] = {}
    made: list[Cell] = []
    devices: list[Device] = []
    for number, (vcpu, memory_mib, vgpu, group, whole, halves, distance) in enumerate(cells):
        cores = tuple(
            Core((cpu, cpu + 1)[: 2 if cpu < 2 * whole else 1], 2)
            for cpu in range(0, 2 * (whole + halves), 2)
        )
        pinnable = 2 * whole + halves
        distances = {
            other: 10 if other == number else min(distance, cells[other][-1])
            for other in range(len(cells))
        }
        made.append(Cell(number, cores, pinnable, vcpu, memory_mib=memory_mib, distances=distances))
        own = {"VCPU": vcpu, "PCPU": pinnable, "MEMORY_MB": memory_mib}
        providers[number] = world.provider(
            f"cell{number}",
            {name: n for name, n in own.items() if n},
            *("HW_NUMA_ROOT", "HW_CPU_HYPERTHREADING"),
            parent="host",
            new=child_uuid(root, f"numa:{number}"),
        )
        if vgpu:
            links = f"CUSTOM_NVLINK_GROUP_{group}"
            card = world.provider(f"card{number}", {"VGPU": vgpu}, links, parent=f"cell{number}")
            devices.append(Device(card, "VGPU", vgpu, cell=number, link_group=links))
    return Host(tuple(made), tuple(sorted(devices, key=lambda d: d.id))), root, providers


@given(cells_of_a_host, asked_for())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_nested_host_gives_through_placement_what_a_flat_one_plans(
    placement: InProcessTransport,
    tmp_path: Path,
    cells: list[tuple[int, ...]],
    asked: GuestDemand,
) -> None:
    world = World(placement, tmp_path / "journal")
    for group in (0, 1):
        world.call("PUT", f"/traits/CUSTOM_NVLINK_GROUP_{group}")
    mark = f"CUSTOM_T{uuid.uuid4().hex[:12].upper()}"
    host, root, providers = host_of(world, cells, mark)
    announcements = Announcements()
    announcements.receive({"host": "host", "nodes": [{"uuid": root, **document(host)}]})
    flat = plan(host, asked.guest())
    consumer = str(uuid.uuid4())
    try:
        world.scheduler(announcements).select_destinations(asked.spec(mark), [consumer])
    except NoValidHost:
        assert isinstance(flat, Refusal)
        return
    assert not isinstance(flat, Refusal)
    record: Any = world.call("GET", f"/allocations/{consumer}")
    held = {rp: entry["resources"] for rp, entry in record["allocations"].items()}
    planned: dict[str, dict[str, int]] = {}
    for part in flat.parts:
        amounts = {"VCPU": part.vcpus, "PCPU": part.pinned, "MEMORY_MB": part.memory_mib}
        planned[providers[part.cell]] = {name: n for name, n in amounts.items() if n}
    for given_unit in flat.given:
        card = planned.setdefault(given_unit.device, {})
        card["VGPU"] = card.get("VGPU", 0) + 1
    assert held == planned


@pytest.mark.parametrize("instances", [1, 2])
def test_hosts_whose_cores_do_not_fit_are_left_for_others(
    placement: InProcessTransport, tmp_path: Path, instances: int
) -> None:
    world = World(placement, tmp_path / "journal")
    mark = f"CUSTOM_T{uuid.uuid4().hex[:12].upper()}"
    halves, halves_root, _cells = host_of(world, [(1, 9, 0, 0, 0, 9, 12)], mark)
    announcements = Announcements()
    announcements.receive({"host": "halves", "nodes": [{"uuid": halves_root, **document(halves)}]})
    asked = GuestDemand(1, True, 2, 1, 0, "", "require").spec(mark)
    consumers = [str(uuid.uuid4()) for _ in range(instances)]
    with pytest.raises(NoValidHost, match="whole cores") as refused:
        world.scheduler(announcements).select_destinations(asked, consumers)
    assert refused.value.causes.filters[-1].name == "the plan of the host"
    other_world = World(placement, tmp_path / "journal")
    whole, root, _cells = host_of(other_world, [(1, 9, 0, 0, 2, 0, 12)], mark)
    announcements.receive({"host": "whole", "nodes": [{"uuid": root, **document(whole)}]})
    chosen = world.scheduler(announcements).select_destinations(asked, consumers, alternates=True)
    assert [[own.compute_node_uuid for own in hosts] for hosts in chosen] == [[root]] * instances
