"""Refusals of the planner: the first rule that cannot be kept, and the nearest miss."""

from __future__ import annotations

import pytest

from compute_agent.fitting.guest import Guest, Node
from compute_agent.fitting.host import Host, PlanOptions
from compute_agent.fitting.plan import Refusal
from compute_agent.fitting.planner import plan
from tests.unit.fitting.hosts import answer, cell, device, near, one, pinned

HUGE = frozenset((2048,))
CELLS = [cell(0, "0-", "0-", pages_mib={2048: 64}), cell(1, "0-")]


@pytest.mark.parametrize(
    ("guest", "rule", "parts"),
    [
        (one(Node(5)), "floating CPUs", ["5 shared", "cell 0: 4 shared CPUs on 4", "lacking"]),
        (one(pinned(3)), "pinned CPUs", ["3 pinned", "cell 0: 2 CPUs to pin", "cell 0: 1 CPUs"]),
        (one(pinned(2), threads="require"), "threads of cores", ["whole cores", "0 of them"]),
        (one(Node(1, memory_mib=1200)), "memory", ["1200 MiB", "cell 0: 200 MiB"]),
        (
            one(Node(1, memory_mib=100, page_sizes=HUGE)),
            "huge pages",
            ["in pages of 2048 KiB", "64 MiB in pages", "cell 0: 36 MiB"],
        ),
        (one(Node(0, 2, 2000)), "memory", ["2000 MiB", "cell 0: 1000 MiB"]),
        (Guest((Node(1),) * 3), "cells of their own", ["nodes 0, 1, 2", "2 cell(s)"]),
        (one(pinned(1), wishes=near("", 3)), "devices", ["3 GPU", "cell 1: 2 GPU"]),
        (one(pinned(2), wishes=near("required")), "nearness of devices", ["policy required"]),
        (
            Guest((pinned(5),), names_nodes=False),
            "pinned CPUs",
            ["5 pinned", "all cells together: 2"],
        ),
    ],
)
def test_a_refusal_names_rule_wish_and_what_is_free(guest, rule, parts):
    result = answer(CELLS, guest, device("a", 1), device("b", 1))
    assert isinstance(result, Refusal)
    assert result.rule == rule
    for part in parts:
        assert part in result.sentence


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
    result = plan(host, guest, PlanOptions(limit=0))
    assert isinstance(result, Refusal)
    assert result.is_undecided
    assert result.sentence == "the fit of the guest could not be decided within 0 steps"
    proof = plan(host, guest)
    assert isinstance(proof, Refusal)
    assert not proof.is_undecided
