"""Consumers that move to make room, their shapes, and the limits of the search for plans."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from itertools import count
from types import ModuleType

import numpy as np
import pytest
from msgspec.structs import replace

from placement_server.candidates.limits import Account, SearchEffort
from placement_server.candidates.make_room import evictions, places
from placement_server.candidates.make_room.holdings import Holdings
from placement_server.candidates.make_room.plan import Bounds
from placement_server.candidates.make_room.question import Question, Room, find_room
from placement_server.candidates.query.query import CandidateQuery, RequestGroup
from tests.property.candidates.moving import Amounts, Fleet
from tests.unit.candidates.forest import SHARING, Provider, writer_of

HOSTS = [
    provider
    for name in ("a", "b")
    for provider in (
        Provider(name, None, {"DISK_GB": 9}, ("CUSTOM_HOST", "COMPUTE_STATUS_DISABLED"), ("agg",)),
        Provider(f"{name}cell", name, {"VCPU": 9, "MEMORY_MB": 9}, ("HW_NUMA_ROOT",)),
        Provider(f"{name}nic", f"{name}cell", {}),
        Provider(f"{name}port", f"{name}nic", {"SRIOV_NET_VF": 9}, ("CUSTOM_NET",)),
        Provider(f"{name}gpu", name, {"VGPU": 9}),
    )
] + [Provider("pool", None, {"DISK_GB": 99}, (SHARING,), ("agg",))]


def holdings(
    requests: Mapping[str, CandidateQuery], /, **held: dict[tuple[str, str], int]
) -> Holdings:
    fleet = Fleet(HOSTS, held)
    index = writer_of(fleet.world()).index
    none = np.zeros(index.size, bool)
    ignored = {"COMPUTE_STATUS_DISABLED"}
    return Holdings(index, fleet.held(), none, {"left alone"}, ignored, requests)


def text(query: CandidateQuery) -> list[str]:
    groups = [
        f"{group.suffix} {dict(group.resources)} {[*map(list, group.required)]}"
        for group in query.groups
    ]
    return groups + [",".join(sorted(rule.together)) for rule in query.same_subtree]


def test_a_consumer_keeps_amounts_traits_and_what_lies_below_what() -> None:
    held = {
        ("a", "DISK_GB"): 1,
        ("acell", "VCPU"): 2,
        ("acell", "MEMORY_MB"): 3,
        ("aport", "SRIOV_NET_VF"): 1,
        ("agpu", "VGPU"): 1,
    }
    movable = holdings({}, c=held)
    query = movable.shapes[movable.shape(0)]
    assert text(query) == [
        "_1 {'DISK_GB': 1} [['CUSTOM_HOST']]",
        "_2 {'VCPU': 2, 'MEMORY_MB': 3} [['HW_NUMA_ROOT']]",
        "_3 {'SRIOV_NET_VF': 1} [['CUSTOM_NET']]",
        "_4 {'VGPU': 1} []",
        "_1,_2",
        "_2,_3",
        "_1,_4",
    ]
    assert query.group_policy == "isolate"
    assert movable.memory.tolist() == [3]


def test_consumers_that_hold_alike_on_different_hosts_have_one_shape() -> None:
    def of(host: str) -> dict[tuple[str, str], int]:
        return {(f"{host}cell", "VCPU"): 2, ("pool", "DISK_GB"): 5}

    movable = holdings({}, c=of("a"), d=of("b"), e={("acell", "VCPU"): 2})
    assert movable.shape(0) == movable.shape(1) != movable.shape(2)
    assert len(set(movable.identities.tolist())) == 3


def test_who_has_a_request_is_alike_to_others_with_that_and_not_to_who_holds_alike() -> None:
    request, held = query_of(VCPU=3), {("acell", "VCPU"): 2}
    movable = holdings(
        {"d": request, "e": request}, c=held, d=held, e={("bcell", "VCPU"): 1}, f=held
    )
    shapes = [movable.shape(consumer) for consumer in range(4)]
    assert shapes[0] == shapes[3] != shapes[1] == shapes[2]
    assert movable.shapes[shapes[1]] == request
    assert len(set(movable.identities.tolist())) == 3


@pytest.mark.parametrize(
    ("held", "is_movable"),
    [
        ({("acell", "VCPU"): 1, ("pool", "DISK_GB"): 1}, True),
        ({("pool", "DISK_GB"): 1}, True),
        ({("acell", "VCPU"): 1, ("bcell", "VCPU"): 1}, False),
    ],
)
def test_who_holds_something_of_two_hosts_stays(
    held: dict[tuple[str, str], int], is_movable: bool
) -> None:
    movable = holdings({}, c=held)
    assert (movable.tree[0] >= 0) == movable.is_whole == is_movable


def test_a_consumer_that_holds_more_than_is_in_use_stays() -> None:
    fleet = Fleet(HOSTS, {"c": {("acell", "VCPU"): 2}, "d": {("bcell", "VCPU"): 1}})
    index = writer_of(HOSTS).index
    movable = Holdings(index, fleet.held(), np.zeros(index.size, bool), (), (), {})
    assert movable.tree.tolist() == [-1, -1]
    assert not movable.is_whole
    of_new_class = replace(fleet.held(), class_id=fleet.held().class_id + 99)
    movable = Holdings(index, of_new_class, np.zeros(index.size, bool), (), (), {})
    assert movable.tree.tolist() == [-1, -1]


COUNT = 200


@pytest.fixture
def few_levels_of_calls() -> Iterator[None]:
    """Leave fewer levels of calls than there are guests: thousands of guests would take minutes."""
    frame, depth, most = sys._getframe(), 1, sys.getrecursionlimit()
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    sys.setrecursionlimit(depth + COUNT)
    yield
    sys.setrecursionlimit(most)


def room(swap: bool, spare: int) -> Room:
    """Empty one host of guests, where there is only so much room beside it."""
    hosts = [Provider("full", None, {"VCPU": COUNT}), Provider("spare", None, {"VCPU": spare})]
    fleet = Fleet(hosts, {f"guest {number}": {("full", "VCPU"): 1} for number in range(COUNT)})
    question = Question(None, Bounds(swap=swap, seconds=600), emptied=("full",))
    index = writer_of(fleet.world()).index
    return find_room(index, question, fleet.held(), (), Account(), SearchEffort())


@pytest.mark.usefixtures("few_levels_of_calls")
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
    stocks = {"gpu": {"VCPU": 3, "VGPU": 1}, "full": {"VCPU": 4}}
    stocks |= {"empty": {"VCPU": 3, "MEMORY_MB": 9}, "used": {"VCPU": 3}, "whole": {"VCPU": 1}}
    question = Question(CandidateQuery((RequestGroup("", (("VCPU", 4),)),)), Bounds(seconds=600))
    for leave_out, others, expected in (
        ("whole", {"d": {("used", "VCPU"): 1}}, "used"),
        ("whole", {}, "empty"),
        ("used", {}, "whole"),
    ):
        hosts = [Provider(name, None, stocks[name]) for name in stocks if name != leave_out]
        fleet = Fleet(hosts, {"c": {("full", "VCPU"): 1}, **others})
        index = writer_of(fleet.world()).index
        [plan] = find_room(index, question, fleet.held(), (), Account(), SearchEffort()).plans
        [move] = plan.moves
        assert index.columns.uuid[move.place.root] == expected


def answer_of(question: Question, hosts: list[Provider], consumers: Mapping[str, Amounts]) -> Room:
    fleet = Fleet(hosts, consumers)
    index = writer_of(fleet.world()).index
    return find_room(index, question, fleet.held(), (), Account(), SearchEffort())


def query_of(**resources: int) -> CandidateQuery:
    return CandidateQuery((RequestGroup("", tuple(resources.items())),))


def test_beside_a_plan_for_all_that_is_asked_there_is_none_for_a_part() -> None:
    hosts = [Provider(name, None, {"VCPU": 2}) for name in ("emptied", "wanted", "spare")]
    consumers = {"g": {("emptied", "VCPU"): 1}, "h": {("wanted", "VCPU"): 1}}
    bounds = Bounds(plans=2, seconds=600)
    question = Question(query_of(VCPU=2), bounds, emptied=("emptied",), avoided=("spare",))
    answer = answer_of(question, hosts, consumers)
    assert [(len(plan.moves), plan.is_whole) for plan in answer.plans] == [(2, True)]
    assert answer.is_proved


def test_further_plans_move_others_that_hold_the_same() -> None:
    hosts = [Provider("full", None, {"VCPU": 6}), Provider("spare", None, {"VCPU": 3})]
    consumers: dict[str, Amounts] = {name: {("full", "VCPU"): 1} for name in "abc"}
    consumers["d"] = {("full", "VCPU"): 3}
    question = Question(query_of(VCPU=2), Bounds(plans=9, seconds=600), avoided=("spare",))
    answer = answer_of(question, hosts, consumers)
    movers = [[answer.holdings.uuids[c] for c in sorted(p.consumers)] for p in answer.plans]
    assert sorted(movers) == [["d"]]
    question = Question(query_of(VCPU=2), Bounds(plans=9, seconds=600), avoided=("spare",))
    del consumers["d"]
    consumers["e"] = {("full", "VCPU"): 3, ("spare", "VCPU"): 1}
    answer = answer_of(question, hosts, consumers)
    movers = [[answer.holdings.uuids[c] for c in sorted(p.consumers)] for p in answer.plans]
    assert sorted(movers) == [["a", "b"], ["a", "c"], ["b", "c"]]
    assert all(plan.moves for plan in answer.plans)


def test_of_many_places_not_each_way_to_have_them_is_tried() -> None:
    hosts = [Provider(f"host{number}", None, {"VCPU": 2}) for number in range(6)]
    hosts.append(Provider("card", "host3", {"VGPU": 1}))
    consumers = {"g": {("host0", "VCPU"): 1}, "h": {("host1", "VCPU"): 1}}
    for number in (4, 5):
        question = Question(query_of(VCPU=2), Bounds(count=number, seconds=600))
        answer = answer_of(question, hosts, consumers)
        [plan] = answer.plans
        assert (len(plan.moves), len(plan.places)) == (number - 4, number)
        assert answer.is_proved == (number == 4)
        assert len({place.root for place in plan.places}) == number


@pytest.mark.parametrize(
    ("module", "limit", "most", "is_proved"),
    [
        (evictions, "_MOST", 2, False),
        (evictions, "_MOST", 5000, True),
        (places, "_MOST_PLACEMENTS", 1, False),
        (places, "_MOST_PLACEMENTS", 2, True),
    ],
)
def test_nothing_is_proved_where_not_each_eviction_and_placement_was_tried(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, limit: str, most: int, is_proved: bool
) -> None:
    monkeypatch.setattr(module, limit, most)
    hosts = [Provider(f"host{number}", None, {"VCPU": 2}) for number in range(4)]
    consumers = {f"g{number}": {(host.name, "VCPU"): 2} for number, host in enumerate(hosts)}
    question = Question(query_of(VCPU=2), Bounds(seconds=600))
    answer = answer_of(question, hosts, consumers)
    assert (answer.plans, answer.is_proved) == ([], is_proved)


@pytest.mark.parametrize(
    ("most", "swap", "order"), [(3, False, "zyx"), (2, False, ""), (2, True, "xy")]
)
def test_of_two_that_have_to_change_places_one_waits_until_a_third_has_made_way(
    most: int, swap: bool, order: str
) -> None:
    stocks = {
        "wanted": {"VCPU": 4, "VGPU": 1},
        "other": {"VCPU": 2, "VGPU": 1},
        "spare": {"VCPU": 1},
    }
    hosts = [Provider(name, None, stock) for name, stock in stocks.items()]
    consumers: dict[str, Amounts] = {
        "x": {("wanted", "VCPU"): 2, ("wanted", "VGPU"): 1},
        "y": {("other", "VCPU"): 2},
        "z": {("wanted", "VCPU"): 1},
    }
    bounds = Bounds(most_moves=most, swap=swap, seconds=600)
    answer = answer_of(Question(query_of(VGPU=1), bounds, avoided=("other",)), hosts, consumers)
    orders = [[answer.holdings.uuids[move.consumer] for move in p.moves] for p in answer.plans]
    assert (orders, answer.is_proved) == ([[*order]] if order else [], True)


def test_what_hosts_share_is_given_once() -> None:
    hosts = [Provider(name, None, {"VCPU": 2}, (), ("agg",)) for name in "ab"]
    for disk, asked, plans in (1, 1, 0), (2, 1, 1), (2, 2, 0), (4, 2, 1):
        pool = Provider("pool", None, {"DISK_GB": disk}, (SHARING,), ("agg",))
        bounds = Bounds(count=2, most_moves=1, seconds=600)
        question = Question(query_of(VCPU=2, DISK_GB=asked), bounds)
        answer = answer_of(question, [*hosts, pool], {})
        assert (len(answer.plans), answer.is_proved) == (plans, True)
