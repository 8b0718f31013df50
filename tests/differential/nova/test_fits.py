"""A guest fits on the cells of a host where nova's fit says so, but for the listed differences.

`NOVA_EXAMPLES` says how many hosts and guests are drawn.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from compute_agent.claims.guest_needs import Allocation, guest_of, wishes_of
from compute_agent.errors import ComputeAgentError
from compute_agent.fitting.guest import Guest
from compute_agent.fitting.host import Cell, Core, Host
from compute_agent.fitting.plan import Plan
from compute_agent.fitting.planner import plan
from tests.differential.nova.drawn_requests import document, spec
from tests.differential.nova.nova_process import SETTINGS, Nova

Drawn = dict[str, Any]

_HUGE: Final = (2048, 1048576)
_CELLS: Final = st.fixed_dictionaries(
    {
        "shared": st.sampled_from([0, 2, 4, 4]),
        "vcpus_used": st.sampled_from([0, 0, 1, 3, 6]),
        "cores": st.one_of(
            st.integers(0, 4).map(lambda count: [2] * count),
            st.integers(0, 6).map(lambda count: [1] * count),
        ),
        "pinned": st.sampled_from([0, 0, 1, 2, 3, 5, 8, 10, 64]),
        "memory": st.sampled_from([1024, 2048, 4096]),
        "memory_used": st.sampled_from([0, 512, 1024]),
        "pages": st.fixed_dictionaries(
            {}, optional={size: st.tuples(st.integers(0, 2), st.integers(0, 1)) for size in _HUGE}
        ),
        "physnets": st.sets(st.sampled_from("ab")),
        "tunneled": st.booleans(),
        "package": st.integers(0, 1),
    }
)
_NODES: Final = st.fixed_dictionaries(
    {
        "cpus": st.sampled_from([1, 2, 2, 4]),
        "memory": st.sampled_from([512, 1024, 1024, 2048, 3000]),
    }
)
GUESTS: Final = st.fixed_dictionaries(
    {
        "nodes": st.sampled_from([1, 1, 2, 3]).flatmap(
            lambda count: st.lists(_NODES, min_size=count, max_size=count)
        ),
        "hw:cpu_policy": st.sampled_from([None, None, "dedicated", "dedicated", "mixed"]),
        "hw:cpu_dedicated_mask": st.sampled_from(["0", "^0", "1", "0-1", "^1", "2-3"]),
        "hw:mem_page_size": st.sampled_from(
            [None, None, None, "small", "large", "any", "2MB", "1GB"]
        ),
        "hw:cpu_thread_policy": st.sampled_from([None, None, "prefer", "require", "isolate"]),
        "hw:emulator_threads_policy": st.sampled_from([None, None, None, "isolate", "share"]),
        "physnets": st.sampled_from([(), (), (), ("a",), ("a", "b")]),
        "tunneled": st.sampled_from([False, False, True]),
        "cpu_ratio": st.sampled_from([1.0, 2.0]),
        "ram_ratio": st.sampled_from([1.0, 1.5]),
    }
)
HOSTS: Final = st.lists(_CELLS, min_size=1, max_size=4)


def _siblings(cell: Drawn) -> tuple[list[int], list[list[int]]]:
    """Return the numbers of the CPUs of a cell: the shared ones, and the dedicated ones by core."""
    shared = list(range(cell["shared"]))
    cores, first = [], cell["shared"]
    for threads in cell["cores"]:
        cores.append(list(range(first, first + threads)))
        first += threads
    return shared, cores


def _pinned(cell: Drawn) -> set[int]:
    cpus = [cpu for core in _siblings(cell)[1] for cpu in core]
    return {cpu for position, cpu in enumerate(cpus) if cell["pinned"] >> position & 1}


def _set(items: Any) -> Drawn:
    return {"_": "set", "items": sorted(items)}


def _huge(cell: Drawn) -> dict[int, tuple[int, int]]:
    """Return the memory in huge pages by size, in MiB: all of it, and what is used."""
    unit = {2048: 512, 1048576: 1024}
    return {
        size: (total * unit[size], min(used, total) * unit[size])
        for size, (total, used) in cell["pages"].items()
    }


def novas_host(cells: list[Drawn]) -> Drawn:
    """The host as nova has it: memory of a cell is all of it, that in huge pages included."""
    made, first = [], 0
    for number, cell in enumerate(cells):
        shared, cores = _siblings(cell)
        siblings = [[cpu + first for cpu in core] for core in ([[cpu] for cpu in shared] + cores)]
        huge = _huge(cell)
        pages = {4: (cell["memory"], cell["memory_used"]), **huge}
        made.append(
            {
                "_": "NUMACell",
                "id": number,
                "cpuset": _set(cpu + first for cpu in shared),
                "pcpuset": _set(cpu + first for core in cores for cpu in core),
                "pinned_cpus": _set(cpu + first for cpu in _pinned(cell)),
                "siblings": [_set(core) for core in siblings],
                "cpu_usage": cell["vcpus_used"],
                "memory": cell["memory"] + sum(total for total, _ in huge.values()),
                "memory_usage": cell["memory_used"] + sum(used for _, used in huge.values()),
                "mempages": [
                    {
                        "_": "NUMAPagesTopology",
                        "size_kb": size,
                        "total": total * 1024 // size,
                        "used": used * 1024 // size,
                        "reserved": 0,
                    }
                    for size, (total, used) in pages.items()
                ],
                "network_metadata": {
                    "_": "NetworkMetadata",
                    "physnets": _set(cell["physnets"]),
                    "tunneled": cell["tunneled"],
                },
                "socket": cell["package"],
            }
        )
        first += len(shared) + sum(map(len, cores))
    return {"_": "NUMATopology", "cells": made}


def flavor_of(guest: Drawn) -> Drawn:
    """The flavor of a guest, with each of its nodes."""
    nodes, first = guest["nodes"], 0
    extra_specs = {"hw:numa_nodes": str(len(nodes))}
    for number, node in enumerate(nodes):
        last = first + node["cpus"] - 1
        extra_specs[f"hw:numa_cpus.{number}"] = f"{first}-{last}"
        extra_specs[f"hw:numa_mem.{number}"] = str(node["memory"])
        first = last + 1
    extra_specs |= {
        name: value for name, value in guest.items() if name.startswith("hw:") and value
    }
    policy = extra_specs.get("hw:cpu_policy")
    if policy != "mixed":
        del extra_specs["hw:cpu_dedicated_mask"]
    if policy is None:
        extra_specs.pop("hw:cpu_thread_policy", None)
        extra_specs.pop("hw:emulator_threads_policy", None)
    memory = sum(node["memory"] for node in nodes)
    request = spec(extra_specs)
    return {**request["flavor"], "vcpus": first, "memory_mb": memory}


def limits_of(guest: Drawn) -> Drawn:
    """The limits that nova judges a guest by."""
    networks = {"physnets": _set(guest["physnets"]), "tunneled": guest["tunneled"]}
    return {
        "_": "NUMATopologyLimits",
        "cpu_allocation_ratio": guest["cpu_ratio"],
        "ram_allocation_ratio": guest["ram_ratio"],
        "network_metadata": {"_": "NetworkMetadata", **networks},
    }


def our_host(cells: list[Drawn], guest: Drawn) -> Host:
    """The host as the planner has it: what is free of it, overcommit included."""
    made = []
    for number, cell in enumerate(cells):
        _, cores = _siblings(cell)
        taken, memory, used = _pinned(cell), cell["memory"], cell["memory_used"]
        free = [Core(tuple(cpu for cpu in core if cpu not in taken), len(core)) for core in cores]
        made.append(
            Cell(
                number,
                tuple(free),
                pinnable=sum(len(core.cpus) for core in free),
                vcpus=int(cell["shared"] * guest["cpu_ratio"]) - cell["vcpus_used"],
                floating=cell["shared"],
                memory_mib=int(memory * guest["ram_ratio"]) - used,
                own_memory_mib=memory,
                pinned_memory_mib=memory - used,
                pages_mib={size: total - taken for size, (total, taken) in _huge(cell).items()},
                package=cell["package"],
                physnets=frozenset(cell["physnets"]),
                tunneled=cell["tunneled"],
            )
        )
    return Host(tuple(made))


def our_guest(guest: Drawn) -> Guest | None:
    """The guest as a claim has it; None where its flavor is refused."""
    networks = {"physnets": list(guest["physnets"]), "tunneled": guest["tunneled"]}
    request = document(spec(flavor=flavor_of(guest))) | {"network_metadata": networks}
    try:
        sums, _ = wishes_of("guest", request, ())
        counts = (sums.get(name, 0) for name in ("VCPU", "PCPU", "MEMORY_MB"))
        made = guest_of("guest", request, Allocation(*counts, {}, ()), _HUGE)
    except ComputeAgentError:
        return None
    return replace(made, physnets=frozenset(guest["physnets"]), needs_tunnel=guest["tunneled"])


Rule = Callable[[list[Drawn], Drawn], bool]


def _has_huge_pages(cells: list[Drawn], guest: Drawn) -> bool:
    return guest["hw:mem_page_size"] is None and any(map(_huge, cells))


def _has_half_cores(_cells: list[Drawn], guest: Drawn) -> bool:
    is_odd = guest["hw:cpu_policy"] == "mixed" or any(n["cpus"] % 2 for n in guest["nodes"])
    return bool(guest["hw:cpu_policy"] and is_odd and guest["hw:cpu_thread_policy"] == "require")


ONLY_NOVA: Final[Mapping[str, Rule]] = {
    # nova gives half of a core, which another guest then shares
    "whole cores for an odd number of CPUs": _has_half_cores,
    # what is in huge pages is no memory for a guest without them
    "ordinary memory beside huge pages": _has_huge_pages,
}
"""Reasons for which a guest fits in nova and not here."""
COUNTS: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def printed_counts() -> Iterator[None]:
    """Print the number of guests after the last of them."""
    yield
    sys.__stdout__.write(f"\nfits beside nova's: {dict(COUNTS)}\n")


def fits_node_by_node(nova: Nova, cells: list[Drawn], guest: Drawn, answer: Plan) -> bool:
    """Whether each node of a guest fits in nova on the cell that ours gives it.

    Nova does not try every way: what it finds for several nodes depends on how they are numbered,
    and it takes one size of pages for `any` and `large` before it looks at the CPUs.
    """
    if len(guest["nodes"]) == 1 and guest["hw:mem_page_size"] not in ("any", "large"):
        return False
    for number, part in enumerate(answer.parts):
        pinned = part.pinned - len(part.emulator_cpus)
        kind = "mixed" if pinned and part.vcpus else "dedicated" if pinned else None
        alone = {
            **guest,
            "nodes": [guest["nodes"][number]],
            "hw:cpu_policy": kind,
            "hw:cpu_dedicated_mask": f"0-{pinned - 1}",
            "physnets": (),
            "tunneled": False,
        }
        if number:
            alone["hw:emulator_threads_policy"] = None
        host, limits = novas_host([cells[part.cell]]), limits_of(alone)
        if not nova("fits", host=host, flavor=flavor_of(alone), limits=limits).get("cells"):
            return False
    given = [cells[part.cell] for part in answer.parts]
    near = {name for cell in cells for name in cell["physnets"]} & set(guest["physnets"])
    return near <= {name for cell in given for name in cell["physnets"]}


@SETTINGS
@given(cells=HOSTS, guest=GUESTS)
def test_a_guest_fits_where_it_fits_in_nova(nova: Nova, cells: list[Drawn], guest: Drawn) -> None:
    theirs = nova("fits", host=novas_host(cells), flavor=flavor_of(guest), limits=limits_of(guest))
    asked = our_guest(guest)
    answer = asked and plan(our_host(cells, guest), asked)
    own = isinstance(answer, Plan)
    if own == bool(theirs.get("cells")):
        COUNTS["both fit" if own else "neither fits"] += 1
        return
    if isinstance(answer, Plan):
        assert fits_node_by_node(nova, cells, guest, answer), answer
        COUNTS["only ours: another order of nodes or size of pages"] += 1
        return
    name = next((name for name, rule in ONLY_NOVA.items() if rule(cells, guest)), None)
    assert name, (answer, theirs)
    COUNTS[f"only nova: {name}"] += 1
