"""Refusals of the planner: the first rule that cannot be kept, and the nearest miss."""

from __future__ import annotations

import re

import pytest

from compute_agent.fitting.guest import Guest, Node, Wish
from compute_agent.fitting.host import Host, PlanOptions
from compute_agent.fitting.plan import Refusal
from compute_agent.fitting.planner import plan
from tests.unit.fitting.hosts import answer, cell, device, near, one, pinned

HUGE = frozenset((2048,))
ANY = frozenset((0, 2048))
CELLS = [
    cell(0, "0-", "0-", pages_mib={2048: 64}),
    cell(
        1, "0-", memory_mib=500, floating=None, physnets=frozenset(("b", "a", "c")), tunneled=True
    ),
    cell(2, vcpus=-1, pinnable=-1, memory_mib=-1),
]
DEVICES = device("a", 1), device("b", 1), device("c", None), device("d", 0, "VF")
VF = (Wish("v", "VF"),)
NEAR_VF = Wish("v", "VF", nearness="required")
CPUS_TO_PIN = "cell 0: 2 CPUs to pin, 1000 MiB; cell 1: 1 CPUs to pin, 500 MiB; cell 2: 0 CPUs to"
NONE_AS_WANTED = "cell 0: 2 CPUs to pin, 0 of them as wanted, 1000 MiB; cell 1: 1 CPUs to pin, 0 of"
MEMORY_OF_ALL = "left on the host; free are cell 0: 1000 MiB; cell 1: 500 MiB; cell 2: 0 MiB; the "
GPUS = "(1 are free on no known cell); free are cell 1: 2 GPU"


@pytest.mark.parametrize(
    ("guest", "rule", "parts"),
    [
        (
            one(Node(5)),
            "floating CPUs",
            "its node 0 wants 5 shared and 0 pinned CPUs with 0 MiB on one cell; free are "
            "cell 0: 4 shared CPUs on 4, 1000 MiB; cell 1: 4 shared CPUs, 500 MiB; cell 2: 0 "
            "shared CPUs on 4, 0 MiB; the least is lacking on cell 0: 1 shared CPUs",
        ),
        (
            one(pinned(3)),
            "pinned CPUs",
            f"3 pinned CPUs with … {CPUS_TO_PIN} pin, 0 MiB; the … cell 0: 1 CPUs to pin",
        ),
        (
            one(pinned(1, emulator_cpus=1, cell=1)),
            "pinned CPUs",
            "1 pinned CPUs and 1 for the emulator with … are cell 1: 1 CPUs to pin, 500 MiB; the … "
            "cell 1: 1 CPUs to pin",
        ),
        (one(pinned(1, cell=5)), "all on one cell", "1 pinned CPUs … free are no cells"),
        (
            one(pinned(2), threads="require"),
            "threads of cores",
            f"2 pinned CPUs of whole cores with … {NONE_AS_WANTED} … cell 0: 2 CPUs",
        ),
        (
            one(pinned(2), threads="isolate"),
            "threads of cores",
            f"2 pinned CPUs of cores without siblings with … {NONE_AS_WANTED} … cell 0: 2 CPUs",
        ),
        (one(Node(1, memory_mib=700, cell=1)), "memory", "CPUs with 700 MiB on … cell 1: 200 MiB"),
        (
            one(Node(1, memory_mib=1200, page_sizes=ANY)),
            "memory",
            "1200 MiB in pages of 2048 KiB on … on 4, 1000 MiB, 64 MiB in pages of 2048 KiB; "
            "cell 1: 4 shared CPUs, 500 MiB, 0 MiB in pages … cell 0: 200 MiB",
        ),
        (
            one(Node(1, memory_mib=100, page_sizes=HUGE)),
            "huge pages",
            "100 MiB in pages of 2048 KiB on … on 4, 64 MiB in pages of 2048 KiB; … cell 0: 36 MiB",
        ),
        (
            one(Node(1, memory_mib=950)),
            "memory",
            f"the guest wants 950 MiB of ordinary memory, of which 900 MiB are {MEMORY_OF_ALL}"
            "least is lacking on the host: 50 MiB",
        ),
        (
            one(Node(1, memory_mib=950, page_sizes=ANY)),
            "memory",
            f"the guest wants 950 MiB … {MEMORY_OF_ALL} … the host: 50 MiB",
        ),
        (
            Guest((Node(1),) * 3),
            "cells of their own",
            "its node 2 wants a cell of its own, as nodes 0, 1, 2 do, which fit on 2 cell(s) only; "
            "free are cell 0: 4 shared CPUs on 4, 1000 MiB; cell 1: 4 shared CPUs, 500 MiB",
        ),
        (
            one(pinned(1), wishes=(*near("", 4), *VF)),
            "devices",
            f"the guest wants 4 GPU {GPUS}",
        ),
        (
            one(pinned(2), wishes=(*near("required"), *near("preferred"), *VF)),
            "nearness of devices",
            f"the guest wants 2 GPU near its cells (policy required) {GPUS}",
        ),
        (
            one(pinned(2), physnets=frozenset(("b", "a", "elsewhere"))),
            "nearness of networks",
            "the guest wants cells near its networks ([neutron]physnets), of which it needs one "
            "for each; free are cell 0: near no network; cell 1: near a, b, c and the tunnels; "
            "cell 2: near no network",
        ),
        (
            Guest((pinned(5),), names_nodes=False, physnets=frozenset("a"), wishes=VF),
            "pinned CPUs",
            f"5 pinned CPUs with 0 MiB; free are {CPUS_TO_PIN} pin, 0 MiB; the least is lacking "
            "on all cells together: 2 CPUs to pin",
        ),
        (
            Guest((pinned(1),), names_nodes=False, physnets=frozenset("a"), wishes=(NEAR_VF,)),
            "nearness of networks",
            "the guest wants cells near its networks",
        ),
    ],
)
def test_a_refusal_names_rule_wish_and_what_is_free(guest, rule, parts):
    result = answer(CELLS, guest, *DEVICES, memory_mib=900)
    assert isinstance(result, Refusal)
    assert result.rule == rule
    assert re.search(".*".join(map(re.escape, parts.split(" … "))), result.sentence), (
        result.sentence
    )


def test_where_each_thing_is_free_but_not_together_that_is_the_rule():
    cells = [cell(0, "01", memory_mib=10), cell(1, "--")]
    result = answer(cells, one(pinned(2, memory_mib=500)))
    assert isinstance(result, Refusal)
    assert (result.rule, result.node) == ("all on one cell", 0)


def test_a_host_without_cells_refuses_in_words():
    result = answer([], one(Node(1)))
    assert isinstance(result, Refusal)
    assert "no cells" in result.sentence


def test_a_proof_that_would_take_too_many_steps_is_not_made():
    host = Host(tuple(CELLS), (device("a", 1), device("b", 1)))
    guest = one(pinned(2), wishes=near("required"))
    result = plan(host, guest, PlanOptions(budget=0, limit=0))
    assert isinstance(result, Refusal)
    assert result.is_undecided
    assert result.sentence == "the fit of the guest could not be decided within 0 steps"
    proof = plan(host, guest)
    assert isinstance(proof, Refusal)
    assert not proof.is_undecided


def test_a_proof_stays_one_where_too_few_steps_are_left_for_its_reason():
    host = Host((cell(0, physnets=frozenset("a")), cell(1)), (device("a", 1),))
    guest = one(Node(1), wishes=near("required"), physnets=frozenset("a"))
    answers = [plan(host, guest, PlanOptions(budget=0, limit=limit)) for limit in range(20)]
    proofs = [a for a in answers if isinstance(a, Refusal) and not a.is_undecided]
    assert proofs[0].sentence == (
        "the guest does not fit, which is proved; the rule that cannot be kept was not found "
        f"within {answers.index(proofs[0])} steps"
    )
    assert proofs[-1].rule == "nearness of networks"
