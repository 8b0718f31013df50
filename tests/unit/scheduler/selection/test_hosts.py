"""Hosts that a request or an announcement leaves out: ignored, forced, silent, disabled."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from compute_agent.request.spec import Destination
from compute_agent.scheduler.errors import NoValidHost
from compute_agent.scheduler.fleet.announcements import Announcements

from .clouds import ONE, chosen, flat_hosts, scheduler_on


def test_hosts_to_ignore_and_hosts_tried_before_are_left_out(journal: Path) -> None:
    bank = flat_hosts(a=9, b=8, c=4)
    asked = replace(ONE, ignore_hosts=frozenset({"host-a"}), retried_hosts=frozenset({"host-b"}))
    assert chosen(scheduler_on(bank, journal), asked) == ["host-c"]


def test_a_forced_host_is_asked_for_alone_and_no_filter_runs(journal: Path) -> None:
    bank = flat_hosts(a=9, b=4)
    bank.summaries["b"]["traits"] = ["COMPUTE_STATUS_DISABLED"]
    asked = replace(ONE, force_hosts=frozenset({"host-b"}))
    assert chosen(scheduler_on(bank, journal), asked) == ["host-b"]
    assert bank.queries[0]["in_tree"] == "b"


def test_a_host_that_does_not_exist_is_named(journal: Path) -> None:
    asked = replace(ONE, destination=Destination(host="nowhere"))
    with pytest.raises(NoValidHost, match="Placement knows no host nowhere"):
        chosen(scheduler_on(flat_hosts(a=9), journal), asked)


@pytest.mark.parametrize(("track", "host"), [(True, "host-b"), (False, "host-a")])
def test_announced_instances_count_unless_they_are_not_tracked(
    journal: Path, track: bool, host: str
) -> None:
    announcements = Announcements()
    announcements.receive({"host": "h", "nodes": [{"uuid": "a", "instances": 50}]})
    bank = flat_hosts(a=9, b=4)
    options = {"filters": ["NumInstancesFilter"], "track_instances": track}
    scheduler = scheduler_on(bank, journal, announcements=announcements, **options)
    assert chosen(scheduler, ONE) == [host]


def in_cells(**cells: str) -> Announcements:
    announcements = Announcements()
    for root, cell in cells.items():
        announcements.receive({"host": root, "nodes": [{"uuid": root, "cell_uuid": cell}]})
    return announcements


def test_alternates_are_of_the_cell_of_the_chosen_host(journal: Path) -> None:
    bank = flat_hosts(a=8, b=7, c=6, d=5)
    announcements = in_cells(a="c1", b="c2", c="c1", d="c2")
    scheduler = scheduler_on(bank, journal, announcements=announcements)
    [selections] = scheduler.select_destinations(ONE, ["i1"], alternates=True)
    assert [selection.compute_node_uuid for selection in selections] == ["a", "c"]
    assert {selection.cell_uuid for selection in selections} == {"c1"}


@pytest.mark.parametrize(("cross", "host"), [(False, "b"), (True, "b")])
def test_a_move_to_another_cell_must_be_allowed(journal: Path, cross: bool, host: str) -> None:
    destination = Destination(cell="c2", allow_cross_cell_move=cross)
    asked = replace(ONE, destination=destination)
    bank = flat_hosts(a=9, b=4)
    scheduler = scheduler_on(bank, journal, announcements=in_cells(a="c1", b="c2"))
    assert chosen(scheduler, asked) == [f"host-{host}"]
    full = flat_hosts(a=9, b=1)
    full.candidates = full.candidates[:1]
    scheduler = scheduler_on(full, journal, announcements=in_cells(a="c1", b="c2"))
    if cross:
        assert chosen(scheduler, asked) == ["host-a"]
    else:
        with pytest.raises(NoValidHost):
            chosen(scheduler, asked)
