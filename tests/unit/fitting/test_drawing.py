"""Drawings of plans on their hosts."""

from __future__ import annotations

from compute_agent.fitting.drawing import draw
from compute_agent.fitting.guest import Guest, Node, Wish
from compute_agent.fitting.host import Host
from compute_agent.fitting.planner import plan
from tests.unit.fitting.hosts import cell, device

HOST = Host(
    (cell(0, "01", "0-", pages_mib={2048: 64}), cell(1, "--")),
    (device("gpu", 0, units=("0000:81:00.0",), link_group="A"), device("nic", None, "VF")),
)


def test_a_plan_is_drawn_with_what_is_taken_and_what_the_guest_gets():
    guest = Guest((Node(1, 2, 100),), wishes=(Wish("", "GPU"),))
    assert draw(HOST, plan(HOST, guest)) == [
        "cell 0: 4 CPUs to float, 1*; 1000 MiB, 100*",
        "  cores (0* 1*)(10 -)",
        "  pages of 2048 KiB: 64 MiB",
        "cell 1: 4 CPUs to float; 1000 MiB",
        "  cores (- -)",
        "device gpu on cell 0, links A: 1 GPU free: 0000:81:00.0*",
        "device nic on no known cell: 1 VF free",
        "-: taken, *: for this guest",
        "fits: no plan is better",
    ]


def test_a_refusal_ends_the_drawing():
    last = draw(HOST, plan(HOST, Guest((Node(pinned=4),))))[-1]
    assert last.startswith("does not fit: its node 0 wants 0 shared and 4 pinned CPUs")


def test_pages_and_guests_that_float_are_drawn():
    pages = Guest((Node(1, 0, 64, frozenset((2048,))),))
    assert "  pages of 2048 KiB: 64 MiB, 64*" in draw(HOST, plan(HOST, pages))
    floating = Guest((Node(1),), names_nodes=False, floats=True)
    assert "its CPUs and memory may be on any cell" in draw(HOST, plan(HOST, floating))
