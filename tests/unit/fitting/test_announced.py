"""Announcements of what is free: read back as the host that they are of, and bounded in size."""

from __future__ import annotations

import json

import pytest

from compute_agent.fitting.announced import MOST_CELLS, MOST_DEVICES, document, host_of
from compute_agent.fitting.guest import Guest, Node, Wish
from compute_agent.fitting.host import Host
from compute_agent.fitting.plan import Plan
from compute_agent.fitting.planner import plan
from tests.unit.fitting.hosts import cell, device

HOST = Host(
    (
        cell(0, "01", "0-", per_group=1, distances={0: 10, 1: 21}, package=0),
        cell(1, "01", "01", pages_mib={2048: 512}, physnets=frozenset("a"), tunneled=True),
    ),
    (device("gpu", 1, link_group="0", pcie_root="root"), device("nic", None, "VF", used=True)),
    1500,
)


@pytest.mark.parametrize(
    "guest",
    [
        Guest((Node(pinned=2, memory_mib=100),), threads="require"),
        Guest((Node(2, memory_mib=64, page_sizes=frozenset((2048,))),)),
        Guest((Node(1), Node(1)), physnets=frozenset("a"), needs_tunnel=True),
        Guest((Node(pinned=2),), wishes=(Wish("", "GPU", nearness="required"),)),
        Guest((Node(1, memory_mib=1600),), names_nodes=False, floats=True),
        Guest((Node(1, memory_mib=1400),), names_nodes=False, floats=True),
        Guest((Node(pinned=5),)),
        Guest((Node(5),)),
    ],
)
def test_a_scheduler_plans_with_an_announcement_as_the_agent_does(guest):
    heard = host_of(json.loads(json.dumps(document(HOST))))
    assert heard is not None
    own, other = plan(HOST, guest), plan(heard, guest)
    assert isinstance(own, Plan) == isinstance(other, Plan)
    if isinstance(own, Plan) and isinstance(other, Plan):
        assert [part.cell for part in own.parts] == [part.cell for part in other.parts]
        assert [given.device for given in own.given] == [given.device for given in other.given]


def test_an_announcement_is_bounded():
    many = Host(HOST.cells, tuple(device(str(i), 0) for i in range(MOST_DEVICES + 1)))
    assert "devices" not in document(many)
    large = Host(tuple(cell(number) for number in range(MOST_CELLS + 1)))
    assert document(large) == {}
    cells = tuple(
        cell(number, *["01"] * 64, distances=dict.fromkeys(range(MOST_CELLS), 21))
        for number in range(MOST_CELLS)
    )
    devices = tuple(device(f"{i:036}", 0) for i in range(MOST_DEVICES))
    assert len(json.dumps(document(Host(cells, devices)))) < 100_000


@pytest.mark.parametrize(
    "announced",
    [{}, {"cells": None}, {"cells": 5}, {"cells": [5]}, {"cells": [{"cores": [[1]]}]}],
)
def test_what_cannot_be_read_is_no_host(announced):
    assert host_of(announced) is None
