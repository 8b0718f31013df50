"""Candidates composed from the summaries of a tree: the best that a host can give."""

from __future__ import annotations

from typing import Any

import pytest

from compute_agent.fitting.host import Cell, Core, Device, Host, PlanOptions
from compute_agent.provider_tree.provider import child_uuid
from compute_agent.request.candidate_request import UNSUFFIXED, CandidateRequest, RequestGroup
from compute_agent.request.guest_numa import GuestNode, GuestNuma, planned_guest
from compute_agent.scheduler.host_state import HostState
from compute_agent.scheduler.placement.candidates import Candidate
from compute_agent.scheduler.search.host_plans import HostPlans
from tests.unit.scheduler.specs import spec
from tests.unit.scheduler.trees import answered, candidate, summary

WHOLE = GuestNuma((GuestNode(2, 0, 100),))
PAIR = GuestNuma((GuestNode(2, 0, 100), GuestNode(2, 0, 200)), names_nodes=True)
GPU = RequestGroup({"VGPU": 1})


def cell(vcpu: int, memory: int = 1000, *traits: str) -> dict[str, Any]:
    resources = {"VCPU": (16, 16 - vcpu), "MEMORY_MB": (1000, 1000 - memory)}
    return summary("host", resources, "HW_NUMA_ROOT", *traits, parent="host")


def gpu(parent: str, *traits: str, used: int = 0, total: int = 1) -> dict[str, Any]:
    return summary("host", {"VGPU": (total, used)}, *traits, parent=parent)


def host(base: dict[str, Any], **providers: dict[str, Any]) -> HostState:
    tree = {"host": summary("host", {"DISK_GB": (100, 0)}), **providers}
    answer = answered([base], tree, "nested")
    return HostState("host", "host", dict(answer.providers), answer.candidates)


def request(numa: GuestNuma, **groups: RequestGroup) -> CandidateRequest:
    total = {
        "VCPU": sum(node.vcpu for node in numa.nodes),
        "MEMORY_MB": sum(node.memory_mb for node in numa.nodes),
        "DISK_GB": 5,
    }
    return CandidateRequest({UNSUFFIXED: RequestGroup(total), **groups})


def plans(
    asked: CandidateRequest,
    numa: GuestNuma,
    policy_of: dict[str, str] | None = None,
    *,
    announced: Host | None = None,
    extra_specs: dict[str, str] | None = None,
    **options: Any,
) -> HostPlans:
    guest = planned_guest(spec(extra_specs), numa)
    return HostPlans(
        asked, numa, policy_of or {}, guest, lambda _root: announced, PlanOptions(**options)
    )


def best(
    state: HostState,
    asked: CandidateRequest,
    numa: GuestNuma,
    policy_of: dict[str, str] | None = None,
    **options: Any,
) -> Candidate:
    return plans(asked, numa, policy_of, **options).best_first(state).candidates[0]


def on(provider: str, **mappings: list[str]) -> dict[str, Any]:
    """A candidate of one node on a cell, and of the disk."""
    return candidate(
        {provider: {"VCPU": 2, "MEMORY_MB": 100}, "host": {"DISK_GB": 5}},
        **{"_NUMA0": [provider], "": ["host"], **mappings},
    )


def test_a_guest_without_devices_is_off_the_cells_that_have_free_ones():
    state = host(on("a"), a=cell(8), b=cell(4), card=gpu("a"))
    chosen = best(state, request(WHOLE), WHOLE)
    assert chosen.mappings == {"_NUMA0": ("b",), "": ("host",)}
    assert chosen.allocations == {
        "b": {"VCPU": 2, "MEMORY_MB": 100},
        "host": {"DISK_GB": 5},
    }
    anyway = best(state, request(WHOLE), WHOLE, spare_device_cells=False)
    assert anyway.mappings["_NUMA0"] == ("a",)


def test_nodes_are_matched_with_cells_whichever_candidate_there_is():
    base = candidate(
        {"a": {"VCPU": 2, "MEMORY_MB": 100}, "b": {"VCPU": 2, "MEMORY_MB": 200}},
        _NUMA0=["a"],
        _NUMA1=["b"],
    )
    state = host(base, a=cell(4), b=cell(4), c=cell(16), d=cell(16))
    asked = CandidateRequest({UNSUFFIXED: RequestGroup({"VCPU": 4, "MEMORY_MB": 300})})
    assert best(state, asked, PAIR).mappings == {"_NUMA0": ("c",), "_NUMA1": ("d",)}
    packed = best(state, asked, PAIR, packing=True)
    assert packed.mappings == {"_NUMA0": ("a",), "_NUMA1": ("b",)}


@pytest.mark.parametrize("nearness", ["required", "legacy", "preferred"])
def test_cpus_are_beside_the_device(nearness):
    base = candidate(
        {"a": {"VCPU": 2, "MEMORY_MB": 100}, "card": {"VGPU": 1}, "host": {"DISK_GB": 5}},
        **{"_NUMA0": ["a"], "": ["host"], "gpu": ["card"]},
    )
    state = host(base, a=cell(16), b=cell(4), card=gpu("b"))
    chosen = best(state, request(WHOLE, gpu=GPU), WHOLE, {"gpu": nearness})
    assert chosen.mappings == {"_NUMA0": ("b",), "": ("host",), "gpu": ("card",)}


def linked(layout: str) -> HostState:
    parent = "host" if layout == "flat" else "a"
    cards = {
        name: gpu(parent, f"CUSTOM_NVLINK_GROUP_{group}")
        for name, group in (("g0", 0), ("g1", 1), ("g2", 0), ("g3", 1))
    }
    amounts = {"VCPU": 2, "MEMORY_MB": 100}
    base = candidate(
        {("host" if layout == "flat" else "a"): amounts, "g0": {"VGPU": 1}, "g1": {"VGPU": 1}},
        **({"": ["host"]} if layout == "flat" else {"_NUMA0": ["a"]}),
        x=["g0"],
        y=["g1"],
    )
    providers = {"a": cell(8), **cards} if layout == "nested" else cards
    tree = {"host": summary("host", {"VCPU": (8, 0), "MEMORY_MB": (1000, 0)}), **providers}
    answer = answered([base], tree, layout)
    return HostState("host", "host", dict(answer.providers), answer.candidates)


@pytest.mark.parametrize("layout", ["flat", "nested"])
def test_linked_devices_are_given_together_and_singles_from_broken_groups(layout):
    asked = CandidateRequest(
        {UNSUFFIXED: RequestGroup({"VCPU": 2, "MEMORY_MB": 100}), "x": GPU, "y": GPU}
    )
    state = linked(layout)
    pair = best(state, asked, WHOLE)
    assert {pair.mappings["x"][0], pair.mappings["y"][0]} in ({"g0", "g2"}, {"g1", "g3"})
    broken = state.using(Candidate("host", {"g1": {"VGPU": 1}}, {}))
    amounts = {"VCPU": 2, "MEMORY_MB": 100}
    single = candidate(
        {("host" if layout == "flat" else "a"): amounts, "g0": {"VGPU": 1}},
        **({"": ["host"]} if layout == "flat" else {"_NUMA0": ["a"]}),
        x=["g0"],
    )
    tree = {
        uuid: summary(
            "host",
            {n: (p.capacity(n), p.used(n)) for n in p.counts},
            *p.traits,
            parent=p.parent,
        )
        for uuid, p in broken.providers.items()
    }
    answer = answered([single], tree, layout)
    again = HostState("host", "host", dict(answer.providers), answer.candidates)
    one = CandidateRequest({UNSUFFIXED: asked.group(UNSUFFIXED), "x": GPU})
    assert best(again, one, WHOLE).mappings["x"] == ("g3",)


def test_what_depends_on_something_that_summaries_do_not_show_stays():
    base = candidate(
        {"a": {"VCPU": 2, "MEMORY_MB": 100}, "card": {"VGPU": 1}},
        _NUMA0=["a"],
        gpu=["card"],
    )
    state = host(base, a=cell(8), b=cell(16), card=gpu("a"), other=gpu("b"))
    asked = CandidateRequest({UNSUFFIXED: RequestGroup({"VCPU": 2, "MEMORY_MB": 100})})
    kept = asked.with_group(
        "gpu", RequestGroup({"VGPU": 1}, member_of=frozenset((frozenset(("agg",)),)))
    )
    assert best(state, kept, WHOLE).mappings["gpu"] == ("card",)
    together = CandidateRequest(
        {**kept.groups}, same_subtree=frozenset((frozenset(("gpu", "_NUMA0")),))
    )
    assert best(state, together, WHOLE).mappings == {"_NUMA0": ("a",), "gpu": ("card",)}


def test_traits_of_cpus_and_of_what_is_beside_them_are_kept():
    base = candidate({"a": {"VCPU": 2, "MEMORY_MB": 100}}, _NUMA0=["a"], _TRAITS=["host"])
    tree = {
        "host": summary("host"),
        "a": cell(4, 1000, "HW_CPU_X86_AVX2", "CUSTOM_RACK"),
        "b": cell(16, 1000, "HW_CPU_X86_AVX2"),
        "c": cell(16, 1000, "CUSTOM_RACK"),
    }
    answer = answered([base], tree, "nested")
    state = HostState("host", "host", dict(answer.providers), answer.candidates)
    asked = CandidateRequest(
        {
            UNSUFFIXED: RequestGroup({"VCPU": 2, "MEMORY_MB": 100}).requiring(
                "HW_CPU_X86_AVX2", "CUSTOM_RACK"
            )
        }
    )
    assert best(state, asked, WHOLE).mappings["_NUMA0"] == ("a",)


# -- over several cells --------------------------------------------------------------------------


def over(whole: GuestNode, **cells: tuple[int, int]) -> dict[str, dict[str, int]] | None:
    """What each cell gives of a guest that fits on none alone."""
    probe = CandidateRequest(
        {
            "_NUMA0": RequestGroup({"VCPU": 1, "MEMORY_MB": 1}).requiring("HW_NUMA_ROOT"),
            UNSUFFIXED: RequestGroup({"DISK_GB": 5}),
        }
    )
    first = next(name for name, free in cells.items() if all(free))
    base = candidate(
        {first: {"VCPU": 1, "MEMORY_MB": 1}, "host": {"DISK_GB": 5}},
        **{"_NUMA0": [first], "": ["host"]},
    )
    tree = {
        "host": summary("host", {"DISK_GB": (9, 0)}),
        **{name: cell(vcpu, memory) for name, (vcpu, memory) in cells.items()},
    }
    answer = plans(probe, GuestNuma((whole,))).over_cells(answered([base], tree, "split"), probe)
    composed = answer.candidates
    if not composed:
        return None
    assert composed[0].mappings["_NUMA0"] == tuple(composed[0].allocations.keys() - {"host"}) or (
        set(composed[0].mappings["_NUMA0"]) == composed[0].allocations.keys() - {"host"}
    )
    assert composed[0].allocations["host"] == {"DISK_GB": 5}
    return {name: dict(a) for name, a in composed[0].allocations.items() if name != "host"}


def test_a_guest_larger_than_a_cell_lies_on_the_fewest():
    shares = over(GuestNode(14, 0, 900), a=(4, 1000), b=(8, 1000), c=(6, 1000))
    assert shares is not None
    assert {name: amounts["VCPU"] for name, amounts in shares.items()} == {"b": 8, "c": 6}
    assert sum(amounts.get("MEMORY_MB", 0) for amounts in shares.values()) == 900


def test_memory_may_come_from_a_cell_that_gives_no_cpu():
    assert over(GuestNode(1, 0, 1500), a=(4, 1000), b=(0, 1000)) == {
        "a": {"VCPU": 1, "MEMORY_MB": 1000},
        "b": {"MEMORY_MB": 500},
    }


def test_a_guest_larger_than_the_host_is_nowhere():
    assert over(GuestNode(30, 0, 100), a=(8, 1000), b=(8, 1000)) is None


# -- devices that must be near --------------------------------------------------------------------


def test_a_host_whose_candidates_have_far_devices_only_gets_one_with_a_near_device():
    base = candidate(
        {"a": {"VCPU": 2, "MEMORY_MB": 100}, "card": {"VGPU": 1}},
        _NUMA0=["a"],
        gpu=["card"],
    )
    state = host(base, a=cell(8), b=cell(8), card=gpu("b"))
    asked = CandidateRequest({UNSUFFIXED: RequestGroup({"VCPU": 2, "MEMORY_MB": 100}), "gpu": GPU})
    near = plans(asked, WHOLE, {"gpu": "required"})
    [only] = near.with_near_devices(state).candidates
    assert only.mappings == {"_NUMA0": ("b",), "gpu": ("card",)}
    [over_both] = near.with_near_devices(host(base, a=cell(8), b=cell(1), card=gpu("b"))).candidates
    assert over_both.mappings == {"_NUMA0": ("a", "b"), "gpu": ("card",)}
    full = host(base, a=cell(8), b=cell(0, 0), card=gpu("b"))
    assert near.with_near_devices(full).candidates == ()
    cause = near.cause([full], 3)
    assert cause is not None
    assert (cause.hosts_before, cause.hosts_left) == (3, 2)
    assert "policy required" in cause.rejected[0].reason


def test_groups_that_are_isolated_stay_on_providers_of_their_own():
    two = {"x": GPU, "y": GPU}
    base = candidate(
        {
            "a": {"VCPU": 2, "MEMORY_MB": 100},
            "one": {"VGPU": 1},
            "other": {"VGPU": 1},
        },
        _NUMA0=["a"],
        x=["one"],
        y=["other"],
    )
    state = host(base, a=cell(8), b=cell(8), one=gpu("b", total=4), other=gpu("b", total=4))
    asked = CandidateRequest(
        {UNSUFFIXED: RequestGroup({"VCPU": 2, "MEMORY_MB": 100}), **two}, group_policy="isolate"
    )
    chosen = best(state, asked, WHOLE, dict.fromkeys(two, "required"))
    assert chosen.mappings == {"_NUMA0": ("b",), "x": ("one",), "y": ("other",)}


def test_a_plan_is_drawn_on_its_host():
    state = host(on("a"), a=cell(8), b=cell(4), card=gpu("a"))
    lines = plans(request(WHOLE), WHOLE).drawing(state)
    assert "cell 1: 4 CPUs to float, 2*; 1000 MiB, 100*" in lines
    assert lines[-1] == "fits: no plan is better"


def test_where_the_fit_is_not_decided_the_candidates_of_placement_stay(caplog):
    base = candidate(
        {"a": {"VCPU": 2, "MEMORY_MB": 100}, "b": {"VCPU": 2, "MEMORY_MB": 200}},
        _NUMA0=["a"],
        _NUMA1=["b"],
    )
    state = host(base, a=cell(8), b=cell(8))
    hurried = plans(request(PAIR), PAIR, budget=0, limit=0)
    assert hurried.best_first(state).candidates == state.candidates
    assert "Host host: the fit of the guest could not be decided within 0 steps" in caplog.text


# -- what agents announce -------------------------------------------------------------------------

ROOT = "b5a9d1a2-0d0e-4d38-8d2a-6f3f0e1c2b7d"
CELLS = [child_uuid(ROOT, f"numa:{number}") for number in range(4)]


def nested(free_cpus: tuple[int, ...], base: dict[str, Any], **cards: int) -> HostState:
    """A host of an agent: dedicated CPUs by cell, and cards by the number of their cell."""
    tree = {ROOT: summary(ROOT, {"DISK_GB": (100, 0)})}
    for uuid, free in zip(CELLS, free_cpus, strict=False):
        amounts = {"PCPU": (8, 8 - free), "MEMORY_MB": (1000, 0)}
        tree[uuid] = summary(ROOT, amounts, "HW_NUMA_ROOT", parent=ROOT)
    for name, number in cards.items():
        tree[name] = summary(ROOT, {"VGPU": (1, 0)}, parent=CELLS[number])
    answer = answered([base], tree, "nested")
    return HostState(ROOT, ROOT, dict(answer.providers), answer.candidates)


def pinned(*cells: int, **mappings: list[str]) -> dict[str, Any]:
    """A candidate of nodes on cells, by number."""
    allocations = {CELLS[cell]: {"PCPU": 2, "MEMORY_MB": 100} for cell in cells}
    allocations |= {uuids[0]: {"VGPU": 1} for uuids in mappings.values()}
    nodes = {f"_NUMA{index}": [CELLS[cell]] for index, cell in enumerate(cells)}
    return candidate(allocations, **nodes, **mappings)


def pins(nodes: int, **groups: RequestGroup) -> tuple[CandidateRequest, GuestNuma]:
    numa = GuestNuma((GuestNode(0, 2, 100),) * nodes, names_nodes=nodes > 1)
    total = RequestGroup({"PCPU": 2 * nodes, "MEMORY_MB": 100 * nodes})
    return CandidateRequest({UNSUFFIXED: total, **groups}), numa


HALVES = (Core((0,), 2), Core((2,), 2))
WHOLE_CORE = (Core((4, 5), 2),)


@pytest.mark.parametrize("threads", ["", "require"])
@pytest.mark.parametrize("whole", [0, 1])
def test_whole_cores_come_before_halves_on_nested_hosts(threads, whole):
    announced = Host(
        tuple(
            Cell(number, WHOLE_CORE if number == whole else HALVES, pinnable=2)
            for number in range(2)
        )
    )
    asked, numa = pins(1)
    extra = {"hw:cpu_thread_policy": threads} if threads else {}
    state = nested((2, 2), pinned(1 - whole))
    chosen = best(state, asked, numa, announced=announced, extra_specs=extra)
    assert chosen.mappings["_NUMA0"] == (CELLS[whole],)
    # cores of which fewer CPUs are free than placement counts are out of date
    state = nested((2, 4), pinned(1))
    chosen = best(state, asked, numa, announced=announced)
    assert chosen.mappings["_NUMA0"] == (CELLS[1],)


@pytest.mark.parametrize("far", [1, 2, 3])
def test_nodes_of_a_guest_are_on_the_nearest_cells_of_a_nested_host(far):
    distances = {
        number: {other: 10 if number == other else 32 for other in range(4)} for number in range(4)
    }
    near = 3 if far != 3 else 2
    distances[0][near] = distances[near][0] = 12
    announced = Host(tuple(Cell(n, distances=distances[n]) for n in range(4)))
    asked, numa = pins(2)
    state = nested((8, 8, 8, 8), pinned(0, far))
    chosen = best(state, asked, numa, announced=announced)
    assert {chosen.mappings["_NUMA0"], chosen.mappings["_NUMA1"]} == {(CELLS[0],), (CELLS[near],)}


@pytest.mark.parametrize(("policy", "cell"), [("socket", 1), ("preferred", 3)])
def test_sockets_are_those_that_the_agent_announces(policy, cell):
    # the cell of the card is full; cell 3 has more room, cell 1 shares the socket
    announced = Host(tuple(Cell(number, package=number // 2) for number in range(4)))
    asked, numa = pins(1, gpu=GPU)
    state = nested((0, 4, 4, 8), pinned(2, gpu=["card"]), card=0)
    chosen = best(state, asked, numa, {"gpu": policy}, announced=announced)
    assert chosen.mappings["_NUMA0"] == (CELLS[cell],)


def test_devices_are_linked_as_the_agent_announces():
    cards = {"g0": 0, "g1": 0, "g2": 0, "g3": 0}
    announced = Host(
        tuple(Cell(number) for number in range(2)),
        tuple(Device(name, "VGPU", 1, link_group=f"{int(name[1]) % 2}") for name in cards),
    )
    asked, numa = pins(1, x=GPU, y=GPU)
    state = nested((8, 8), pinned(0, x=["g0"], y=["g1"]), **cards)
    chosen = best(state, asked, numa, announced=announced)
    assert {chosen.mappings["x"], chosen.mappings["y"]} in ({("g0",), ("g2",)}, {("g1",), ("g3",)})


def flat_with_two_cards(*cpus: int) -> tuple[HostState, Host]:
    """A flat host with a card on each of two cells, of which placement names the first."""
    tree = {
        "host": summary("host", {"PCPU": (16, 0), "MEMORY_MB": (2000, 0)}),
        "one": summary("host", {"VGPU": (1, 0)}, parent="host"),
        "two": summary("host", {"VGPU": (1, 0)}, parent="host"),
    }
    base = candidate({"host": {"PCPU": 2, "MEMORY_MB": 100}, "one": {"VGPU": 1}}, gpu=["one"])
    answer = answered([base], tree)
    cells = tuple(Cell(i, pinnable=n, memory_mib=1000 if n else 0) for i, n in enumerate(cpus))
    cards = (Device("one", "VGPU", 1, cell=0), Device("two", "VGPU", 1, cell=1))
    state = HostState("host", "host", dict(answer.providers), answer.candidates)
    return state, Host(cells, cards)


def test_a_flat_host_gives_the_device_beside_cpus_that_are_free():
    state, announced = flat_with_two_cards(1, 8)
    asked, numa = pins(1, gpu=GPU)
    near = plans(asked, numa, {"gpu": "required"}, announced=announced)
    for planned in (near.best_first(state), near.with_near_devices(state)):
        assert planned.candidates[0].mappings == {"gpu": ("two",)}
        assert planned.candidates[0].allocations["two"] == {"VGPU": 1}


@pytest.mark.parametrize("policy", ["required", "legacy", "preferred"])
def test_a_flat_host_whose_devices_are_all_too_far_is_left_out(policy):
    state, announced = flat_with_two_cards(0, 0, 8)
    asked, numa = pins(1, gpu=GPU)
    near = plans(asked, numa, {"gpu": policy}, announced=announced)
    assert bool(near.best_first(state).candidates) == (policy == "preferred")
