"""Limits of the search for room: its time and memory, and the depth of its plans."""

from __future__ import annotations

import sys
from itertools import count

import pytest

from placement_server.candidates.limits import Account, SearchEffort
from placement_server.candidates.make_room.plan import Bounds
from placement_server.candidates.make_room.question import Question, Room, find_room
from placement_server.candidates.query.query import CandidateQuery, RequestGroup
from tests.property.candidates.moving import Fleet
from tests.unit.candidates.forest import SHARING, Provider, writer_of

COUNT = sys.getrecursionlimit() + 200


def room(swap: bool, spare: int) -> Room:
    """Empty one host of guests, where there is only so much room beside it."""
    hosts = [Provider("full", None, {"VCPU": COUNT}), Provider("spare", None, {"VCPU": spare})]
    fleet = Fleet(hosts, {f"guest {number}": {("full", "VCPU"): 1} for number in range(COUNT)})
    question = Question(None, Bounds(swap=swap, seconds=600), emptied=("full",))
    index = writer_of(fleet.world()).index
    return find_room(index, question, fleet.held(), (), Account(), SearchEffort())


@pytest.mark.parametrize("swap", [True, False])
def test_more_consumers_move_than_python_has_levels_of_calls(swap: bool) -> None:
    [plan] = room(swap, COUNT).plans
    assert (len(plan.moves), plan.is_whole) == (COUNT, True)


def test_of_a_large_host_those_move_that_find_a_place() -> None:
    [plan] = room(swap=True, spare=COUNT // 2).plans
    assert (len(plan.moves), len(plan.stuck)) == (COUNT // 2, COUNT - COUNT // 2)


def full_hosts(guests: int, *, pool: int) -> Fleet:
    """Two full hosts, with guests that all differ, and a pool for all of them, if any."""
    held = {
        f"{host}{number}": {(host, "VCPU"): 1, (host, "MEMORY_MB"): number + 1}
        for host in "ab"
        for number in range(guests)
    }
    hosts = [
        Provider(host, None, {"VCPU": guests, "MEMORY_MB": 10_000}, (), ("agg",)) for host in "ab"
    ]
    if pool:
        hosts.append(Provider("pool", None, {"DISK_GB": pool}, (SHARING,), ("agg",)))
        held |= {name: {**amounts, ("pool", "DISK_GB"): 1} for name, amounts in held.items()}
    return Fleet(hosts, held)


@pytest.mark.parametrize(("guests", "pool", "moves"), [(40, 0, 6), (12, 25, 3)])
def test_a_search_ends_in_time_and_holds_only_what_it_keeps(
    guests: int, pool: int, moves: int
) -> None:
    fleet, account = full_hosts(guests, pool=pool), Account()
    resources = [("VCPU", moves), *([("DISK_GB", 1)] if pool else [])]
    query = CandidateQuery((RequestGroup("", tuple(resources)),), None)
    looks = count()
    answer = find_room(
        writer_of(fleet.world()).index,
        Question(query, Bounds(most_moves=moves, seconds=500)),
        fleet.held(),
        (),
        account,
        SearchEffort(),
        lambda: float(next(looks)),
    )
    assert (answer.plans, answer.is_proved) == ([], False)
    assert account.held_bytes < 100_000


def test_a_consumer_moves_where_it_breaks_least() -> None:
    stocks = {"full": {"VCPU": 4}, "gpu": {"VCPU": 3, "VGPU": 1}, "empty": {"VCPU": 3}}
    stocks["used"] = {"VCPU": 3}
    hosts = [Provider(name, None, stock) for name, stock in stocks.items()]
    question = Question(CandidateQuery((RequestGroup("", (("VCPU", 4),)),)), Bounds())
    for others, expected in ({"d": {("used", "VCPU"): 1}}, "used"), ({}, "empty"):
        fleet = Fleet(hosts, {"c": {("full", "VCPU"): 1}, **others})
        index = writer_of(fleet.world()).index
        [plan] = find_room(index, question, fleet.held(), (), Account(), SearchEffort()).plans
        [move] = plan.moves
        assert index.columns.uuid[move.place.root] == expected
