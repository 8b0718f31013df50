"""Claims on hosts: order, lost races, alternates, large guests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from compute_agent.errors import AllocationUpdateFailed, PlacementUnavailable
from compute_agent.placement.responses import NoCapacity
from compute_agent.scheduler.claiming.claims import GiveBack, HostOrder
from compute_agent.scheduler.claiming.journal import Journal
from compute_agent.scheduler.errors import NoValidHost
from compute_agent.scheduler.placement.candidates import Candidate
from tests.unit.scheduler.bank import Bank
from tests.unit.scheduler.specs import spec
from tests.unit.scheduler.trees import candidate, summary

from .clouds import ONE, cards, chosen, flat_hosts, scheduler_on


def test_the_host_with_most_room_is_claimed(journal: Path) -> None:
    bank = flat_hosts(a=4, b=8, c=6)
    assert chosen(scheduler_on(bank, journal), ONE) == ["host-b"]
    assert bank.held == {"i1": {"b": {"VCPU": 2}}}


def test_a_host_whose_root_gives_nothing_is_chosen(journal: Path) -> None:
    bank = Bank(
        [candidate({"cell": {"VCPU": 2}}, _NUMA0=["cell"])],
        {
            "host": summary("host", None, "COMPUTE_NODE"),
            "cell": summary("host", {"VCPU": (8, 0)}, "HW_NUMA_ROOT", parent="host"),
        },
    )
    [[selection]] = scheduler_on(bank, journal).select_destinations(ONE, ["i1"])
    assert selection.compute_node_uuid == "host"
    assert json.loads(selection.allocation_request)["allocations"] == {
        "cell": {"resources": {"VCPU": 2}}
    }
    assert selection.allocation_request_version == "1.39"


def test_a_lost_race_costs_a_candidate_and_not_the_host(journal: Path) -> None:
    bank = cards(1, 1, 1)
    bank.held["neighbour"] = {"card0": {"VGPU": 1}}
    bank.held["other"] = {"card1": {"VGPU": 1}}
    assert chosen(scheduler_on(bank, journal), ONE) == ["host-host"]
    assert bank.claims == ["i1 card0 refused", "i1 card1 refused", "i1 host card2"]


def test_candidates_that_need_what_was_short_are_skipped() -> None:
    offered = [
        Candidate("host", {"host": {"VCPU": 2}, "card0": {"VGPU": 1}}, {}),
        Candidate("host", {"host": {"VCPU": 2}, "card1": {"VGPU": 1}}, {}),
        Candidate("host", {"host": {"VCPU": 1}, "card1": {"VGPU": 1}}, {}),
    ]
    tries = HostOrder(offered, 8)
    assert tries.next() is offered[0]
    tries.record_refusal(offered[0], NoCapacity("host", "VCPU"))
    assert tries.next() is offered[2]
    tries.record_refusal(offered[2], NoCapacity())
    assert tries.next() is None


def test_no_more_candidates_per_host_are_tried_than_allowed(journal: Path) -> None:
    bank = cards(1, 1, 1, 1)
    for index in range(3):
        bank.held[f"n{index}"] = {f"card{index}": {"VGPU": 1}}
    with pytest.raises(NoValidHost) as caught:
        chosen(scheduler_on(bank, journal, candidates_per_host=2), ONE)
    assert bank.claims == ["i1 card0 refused", "i1 card1 refused"]
    assert [lost.provider for lost in caught.value.causes.claims_lost] == ["card0", "card1"]


def test_after_the_candidates_of_one_host_the_next_host_is_tried(journal: Path) -> None:
    bank = flat_hosts(a=8, b=4)
    bank.held["neighbour"] = {"a": {"VCPU": 8}}
    assert chosen(scheduler_on(bank, journal), ONE) == ["host-b"]


def test_a_consumer_claimed_anew_is_not_undone_by_the_journal(journal: Path) -> None:
    bank = flat_hosts(a=4, b=2)
    Journal(journal).open({"op": "give_back", "consumer": "i1", "allocations": {"a": {"VCPU": 2}}})
    bank.held["i1"] = {"b": {"VCPU": 2}}
    GiveBack(bank.client, Journal(journal)).process_journal()
    assert bank.held == {"i1": {"b": {"VCPU": 2}}}
    assert Journal(journal).entries() == {}


def test_an_instance_that_somebody_else_claims_is_left_alone(journal: Path) -> None:
    bank = flat_hosts(a=8)
    bank.held["i2"] = {"a": {"VCPU": 1}}
    with pytest.raises(AllocationUpdateFailed):
        chosen(scheduler_on(bank, journal), ONE, "i1", "i2")
    assert bank.held == {"i2": {"a": {"VCPU": 1}}}


def test_placement_down_is_no_full_cloud(journal: Path) -> None:
    bank = flat_hosts(a=8)
    bank.down = True
    with pytest.raises(PlacementUnavailable):
        chosen(scheduler_on(bank, journal), ONE)


def test_alternates_are_other_hosts_and_not_claimed(journal: Path) -> None:
    bank = flat_hosts(a=8, b=7, c=6, d=5)
    [selections] = scheduler_on(bank, journal).select_destinations(ONE, ["i1"], alternates=True)
    assert [selection.nodename for selection in selections] == ["host-a", "host-b", "host-c"]
    assert set(bank.held) == {"i1"}


def test_a_large_guest_is_split_when_no_cell_can_hold_it(journal: Path) -> None:
    cells = {
        name: summary("host", {"VCPU": (4, 0)}, "HW_NUMA_ROOT", parent="host") for name in "ab"
    }

    class Cells(Bank):
        def offer(self, parameters: Any) -> Any:
            asked = dict(parameters).get("resources_NUMA0", "")
            self.candidates = (
                [candidate({"a": {"VCPU": 1}}, _NUMA0=["a"])] if asked == "VCPU:1" else []
            )
            return super().offer(parameters)

    bank = Cells([], {"host": summary("host"), **cells})
    chosen(scheduler_on(bank, journal), spec(vcpus=6, memory_mb=0, root_gb=0))
    assert sum(amounts["VCPU"] for amounts in bank.held["i1"].values()) == 6
    with pytest.raises(NoValidHost):
        chosen(
            scheduler_on(bank, journal),
            spec({"hw:numa_nodes": "1"}, vcpus=6, memory_mb=0, root_gb=0),
            "i2",
        )


def test_a_shortage_without_a_name_costs_one_candidate(journal: Path) -> None:
    class SilentBank(Bank):
        def shortage(self, *args: Any, **kwargs: Any) -> str | None:
            return super().shortage(*args, **kwargs) and "There is too little."

    bank = SilentBank(cards(1, 1).candidates, cards(1, 1).summaries)
    bank.held["neighbour"] = {"card0": {"VGPU": 1}}
    assert chosen(scheduler_on(bank, journal), ONE) == ["host-host"]


def test_a_selection_says_what_the_host_may_be_filled_up_to(journal: Path) -> None:
    bank = flat_hosts(a=9)
    bank.summaries["a"]["resources"] |= {
        "MEMORY_MB": {"capacity": 4096, "used": 0},
        "DISK_GB": {"capacity": 100, "used": 0},
    }
    [[selection]] = scheduler_on(bank, journal).select_destinations(ONE, ["i1"])
    assert selection.limits == {"memory_mb": 4096, "disk_gb": 100}
