"""Order, limits, give-up and the extensions of the search."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any
from urllib.parse import parse_qsl

import pytest

from placement_server.candidates.errors import OutOfTime, SearchGaveUp, TooManyCandidates
from placement_server.candidates.index.summaries import SummaryCache
from placement_server.candidates.limits import Deadline
from placement_server.candidates.query.parser import parse
from placement_server.candidates.query.query import CandidateQuery, RequestGroup
from placement_server.candidates.search.search import Candidate, Search, SearchLimits
from tests.unit.candidates.forest import (
    Inventory,
    Provider,
    amounts,
    ask,
    changed,
    mapping,
    rendered,
    trees_of,
    writer_of,
)


def gpu_host(name: str, count: int, total: int = 1) -> list[Provider]:
    gpus = [Provider(f"{name}-gpu{number}", name, {"VGPU": total}) for number in range(count)]
    return [Provider(name, None, {"VCPU": 8}), *gpus]


def wanted(groups: int, policy: str = "isolate") -> str:
    resources = "&".join(f"resources_{number}=VGPU:1" for number in range(groups))
    return f"{resources}&group_policy={policy}"


def providers_of(body: dict[str, Any]) -> list[frozenset[str]]:
    return [frozenset(request["allocations"]) for request in body["allocation_requests"]]


def roots_in_order(world: list[Provider], query: str, **options: object) -> list[str]:
    index = writer_of(world).index
    found = parse(parse_qsl(query), (1, 39))
    search = Search(found, index, SearchLimits(found.limit, **options))  # type: ignore[arg-type]
    return [index.columns.uuid[candidate.tree.root] for candidate in search.candidates()]


def test_the_first_round_takes_one_candidate_of_each_tree() -> None:
    world = gpu_host("a", 3) + gpu_host("b", 2) + gpu_host("c", 1)
    assert roots_in_order(world, "resources1=VGPU:1") == ["a", "b", "c", "a", "b", "a"]


def test_trees_of_several_shapes_stay_in_the_order_of_their_ids() -> None:
    world = [*gpu_host("a", 1), Provider("b", None, {"VGPU": 1}), *gpu_host("c", 1)]
    assert roots_in_order(world, "resources=VGPU:1") == ["a", "b", "c"]


def test_under_a_maximum_depth_first_takes_all_of_a_tree_before_the_next() -> None:
    world = gpu_host("a", 3) + gpu_host("b", 2)
    depth = roots_in_order(world, "resources1=VGPU:1", maximum=4)
    assert depth == ["a", "a", "a", "b"]
    breadth = roots_in_order(world, "resources1=VGPU:1", maximum=4, breadth_first=True)
    assert breadth == ["a", "b", "a", "b"]


def test_a_changed_tree_keeps_its_place_in_the_order() -> None:
    world = gpu_host("a", 1) + gpu_host("b", 1)
    writer = writer_of(world)
    writer.apply({1: trees_of(world)[0]})
    search = Search(parse([("resources", "VGPU:1")], (1, 39)), writer.index)
    found = [writer.index.columns.uuid[candidate.tree.root] for candidate in search.candidates()]
    assert found == ["a", "b"]


def test_candidates_that_differ_in_amounts_come_before_exchanges() -> None:
    world = gpu_host("a", 4) + gpu_host("b", 2)
    body = ask(world, wanted(2))
    found = providers_of(body)
    distinct = 6 + 1
    assert len(found) == 2 * distinct
    assert len(set(found[:distinct])) == distinct
    assert Counter(found) == dict.fromkeys(found, 2)


@pytest.mark.parametrize(
    ("query", "distinct", "every"),
    [
        ("resources_A=VGPU:1&required_A=CUSTOM_T&resources_B=VGPU:1&group_policy=isolate", 36, 64),
        ("resources=VGPU:1&resources_B=VGPU:1&group_policy=none", 36, 72),
        ("resources_A=VGPU:1&resources_B=DISK_GB:1&resources_C=VGPU:1&group_policy=none", 36, 72),
    ],
)
def test_exchanges_of_groups_that_are_not_alike_come_last_too(
    query: str, distinct: int, every: int
) -> None:
    gpus = [Provider(f"g{n}", "h", {"VGPU": 1}, ("CUSTOM_T",) if n < 8 else ()) for n in range(9)]
    world = [Provider("h", inventory={"DISK_GB": 10}), *gpus]
    body = ask(world, query)
    found = providers_of(body)
    assert (len(found), len(set(found))) == (every, distinct)
    assert len(set(found[:distinct])) == distinct
    limited = ask(world, f"{query}&limit={distinct}")
    assert len(set(providers_of(limited))) == distinct


def test_groups_without_resources_do_not_put_off_amounts_that_are_new() -> None:
    world = [Provider("h"), *(Provider(f"g{n}", "h", {"VGPU": 1}) for n in range(4))]
    query = "resources_A=VGPU:1&required_B=!CUSTOM_T&same_subtree=_A,_B&group_policy=none&limit=4"
    writer = [*world, Provider("names", traits=("CUSTOM_T",))]
    body = ask(writer, query)
    assert len(set(providers_of(body))) == 4


def test_so_many_exchanges_that_the_order_is_given_up_are_all_found() -> None:
    traits = tuple(f"CUSTOM_T{n}" for n in range(7))
    world = [Provider("h"), *(Provider(f"g{n}", "h", {"VGPU": 1}, traits) for n in range(7))]
    groups = "&".join(f"resources_{n}=VGPU:1&required_{n}=CUSTOM_T{n}" for n in range(7))
    spare = [Provider(f"s{n}", "h", {"VGPU": 1}, (f"CUSTOM_T{n}",)) for n in range(7)]
    body = ask([*world, *spare[:1]], f"{groups}&group_policy=isolate")
    found = [
        str(allocation_request["mappings"]) for allocation_request in body["allocation_requests"]
    ]
    # all seven on the equal ones, or the first on its own and six of the seven
    assert len(found) == len(set(found)) == 5040 + 5040


@pytest.mark.parametrize("policy", ["none", "isolate"])
def test_every_way_to_hand_out_equal_devices_is_found(policy: str) -> None:
    body = ask(gpu_host("a", 4), wanted(4, policy))
    suffixes = [f"_{number}" for number in range(4)]
    gpus = [f"a-gpu{number}" for number in range(4)]
    assert mapping(body, *suffixes) == set(itertools.permutations(gpus))
    assert len(body["allocation_requests"]) == 24


ONE_SHORT = "&".join(f"resources_{number}=VGPU:2" for number in range(25))
TWO_KINDS = [
    *(f"resources_{number}=VGPU:1&required_{number}=CUSTOM_A" for number in range(9)),
    *(f"resources_x{number}=VGPU:1" for number in range(8)),
    "group_policy=isolate",
]


@pytest.mark.parametrize(
    ("world", "query", "looks"),
    [
        pytest.param(gpu_host("a", 63), wanted(64, "none"), 10, id="more groups than devices"),
        pytest.param(gpu_host("a", 63), wanted(64), 10, id="more isolated groups than devices"),
        pytest.param(
            [
                Provider("host"),
                *(Provider(f"a{n}", "host", {"VGPU": 1}, ("CUSTOM_A",)) for n in range(12)),
                *(Provider(f"b{n}", "host", {"VGPU": 1}) for n in range(4)),
            ],
            "&".join(TWO_KINDS),
            10,
            id="groups of two kinds compete for devices",
        ),
        # Each group of two units fills one device of three: half of the capacity cannot be used.
        pytest.param(
            gpu_host("a", 24, total=3),
            f"{ONE_SHORT}&group_policy=none",
            50,
            id="equal devices of which the first led to nothing",
        ),
    ],
)
def test_what_cannot_fit_fails_without_trying_combinations(
    world: list[Provider], query: str, looks: int
) -> None:
    ticks = itertools.count()
    parsed = parse(parse_qsl(query), (1, 39))
    deadline = Deadline(clock=lambda: float(next(ticks)))
    search = Search(parsed, writer_of(world).index, deadline=deadline)
    assert list(search.candidates()) == []
    assert next(ticks) < looks


def test_a_search_that_runs_out_of_time_says_so() -> None:
    times = iter([0.0, 0.0, 31.0, 31.0, 31.0, 31.0])
    search = Search(
        parse(parse_qsl(wanted(2)), (1, 39)),
        writer_of(gpu_host("a", 24)).index,
        deadline=Deadline(30.0, lambda: next(times)),
    )
    found: list[Candidate] = []
    with pytest.raises(OutOfTime) as caught:
        found.extend(search.candidates())
    assert f"gave up after 30 seconds with {len(found)} candidates found" in str(caught.value)


@pytest.mark.parametrize("breadth_first", [False, True])
@pytest.mark.parametrize("maximum", [-1, 10_000])
def test_the_deadline_ends_exchanges_of_alike_groups(maximum: int, breadth_first: bool) -> None:
    """One way to use seven devices has 5,040 exchanges, which take no search."""
    clock = itertools.count()
    search = Search(
        parse(parse_qsl(wanted(7)), (1, 39)),
        writer_of(gpu_host("a", 7)).index,
        SearchLimits(maximum=maximum, breadth_first=breadth_first),
        deadline=Deadline(9.0, lambda: float(next(clock))),
    )
    given: list[Candidate] = []
    with pytest.raises(OutOfTime) as caught:
        given.extend(search.candidates())
    assert 0 < len(given) < 5040
    counts = (len(given), len(given) + 1)
    assert any(f"9 seconds with {count} candidates found" in str(caught.value) for count in counts)
    assert "search_deadline" in str(caught.value)


@pytest.mark.parametrize("breadth_first", [False, True])
@pytest.mark.parametrize("maximum", [-1, 1000])
def test_an_answer_too_large_for_the_memory_is_given_up(maximum: int, breadth_first: bool) -> None:
    query = parse(parse_qsl(wanted(4)), (1, 39))
    index = writer_of(gpu_host("a", 4)).index
    limits = SearchLimits(maximum=maximum, breadth_first=breadth_first, most=20)
    with pytest.raises(TooManyCandidates) as caught:
        list(Search(query, index, limits).candidates())
    assert "gave up with 21 candidates found" in str(caught.value)
    assert "Ask with a limit of 20 or less" in str(caught.value)
    assert "deadline" not in str(caught.value)
    search = Search(query, index, SearchLimits(limit=20, most=20))
    assert len(list(search.candidates())) == 20


def test_the_count_of_a_search_that_gave_up_in_the_midst_of_trees_is_true() -> None:
    """The sixth tree has the room in sum, but no way to divide it without trying many."""
    world = [
        provider
        for number in range(5)
        for provider in gpu_host(f"h{number}", number + 1, total=150)
    ]
    hard = [Provider("hard"), *(Provider(f"g{n}", "hard", {"VGPU": n}) for n in (30, 37, 40))]
    groups = "&".join(f"resources_{n}=VGPU:{n}" for n in (9, 12, 18, 19, 20, 29))
    index = writer_of(world + hard + gpu_host("last", 1, total=150)).index
    query = parse(parse_qsl(groups + "&group_policy=none"), (1, 39))
    # The clock is looked at when the search is made, before the first trees, and by the solver.
    times = iter([0.0, 0.0, 31.0])
    search = Search(query, index, deadline=Deadline(30.0, lambda: next(times)))
    given: list[Candidate] = []
    with pytest.raises(SearchGaveUp) as caught:
        given.extend(search.candidates())
    assert len(given) == 5
    assert "with 5 candidates found" in str(caught.value)


def test_a_query_of_a_thousand_groups_does_not_exhaust_the_stack() -> None:
    groups = tuple(RequestGroup(f"_{number}", (("VCPU", 1),)) for number in range(1500))
    world = [Provider("host", None, {"VCPU": 2000})]
    body = ask(world, CandidateQuery(groups))
    assert amounts(body) == ["host(VCPU:1500)"]


def test_a_random_sample_is_fair_between_trees_and_within_them() -> None:
    world = [provider for host in "abcd" for provider in gpu_host(host, 4)]
    index = writer_of(world).index
    query = parse(parse_qsl("resources1=VGPU:1"), (1, 39))
    shuffle = random.Random(7)
    first: Counter[str] = Counter()
    for _ in range(800):
        search = Search(query, index, SearchLimits(limit=1), shuffle=shuffle)
        first.update(index.columns.uuid[candidate.slots()[0]] for candidate in search.candidates())
    assert len(first) == 16
    assert max(first.values()) < 3 * min(first.values())


def test_a_random_order_without_limit_has_every_candidate_once() -> None:
    world = gpu_host("a", 5)
    index = writer_of(world).index
    query = parse(parse_qsl(wanted(3)), (1, 39))
    found = [e.slots() for e in Search(query, index, shuffle=random.Random(1)).candidates()]
    ordered = [e.slots() for e in Search(query, index).candidates()]
    assert found != ordered
    assert sorted(found) == sorted(ordered)


def test_extension_root_member_of_looks_at_the_root_of_the_tree() -> None:
    zone = "11111111-2222-3333-4444-555555555555"
    world = [
        Provider("inside", None, {}, (), (zone,)),
        Provider("cell", "inside", {"VCPU": 4}),
        Provider("outside", None, {"VCPU": 4}),
    ]
    query = "resources_1=VCPU:1&root_member_of="
    assert amounts(ask(world, query + zone, extensions=True)) == ["cell(VCPU:1)"]
    assert amounts(ask(world, query + f"!{zone}", extensions=True)) == ["outside(VCPU:1)"]
    assert amounts(ask(world, query + f"in:{zone}", extensions=True)) == ["cell(VCPU:1)"]


def test_a_summary_follows_its_provider() -> None:
    world = [Provider("host", None, {"VCPU": Inventory(8, used=1)})]
    writer = writer_of(world)
    summaries = SummaryCache()
    query = parse([("resources", "VCPU:1")], (1, 39))

    def used() -> int:
        body = rendered(query, writer.index, summaries=summaries)
        return int(body["provider_summaries"]["host"]["resources"]["VCPU"]["used"])

    assert used() == 1
    world = changed(world, Provider("host", None, {"VCPU": Inventory(8, used=5)}))
    writer.apply({1: trees_of(world)[0]})
    assert used() == 5


def test_a_summary_shows_the_use_of_its_own_index() -> None:
    writer = writer_of([Provider("host", None, {"VCPU": 8})])
    summaries = SummaryCache()
    indexes = [writer.index]
    key = (1, writer.index.names.class_ids["VCPU"])
    for amount in (3, 5):
        tree_use = writer.place(1, {key: amount})
        assert tree_use is not None
        indexes.append(writer.apply({}, [tree_use]))
    sizes = set()
    for amount, index in [*zip((0, 3, 5), indexes, strict=True)] * 2:
        for _ in range(2):
            assert b'"used":%d' % amount in summaries.trees(index, [0])[0]
        sizes.add(summaries.size)
    assert len(sizes) == 1, "the text of an older use is not kept"


def test_summaries_of_old_and_new_columns_do_not_mix() -> None:
    old = writer_of([Provider("old", None, {"VCPU": 1})]).index
    new = writer_of([Provider("new", None, {"VCPU": 2})]).index
    summaries = SummaryCache()
    for _ in range(2):
        assert b'"old"' in summaries.trees(old, [0])[0]
        assert b'"new"' in summaries.trees(new, [0])[0]


def test_capacity_in_summaries_is_cut_towards_zero() -> None:
    world = [
        Provider(
            "host", None, {"VCPU": Inventory(5, ratio=1.5), "DISK_GB": Inventory(1, 4, ratio=0.5)}
        )
    ]
    summary = ask(world, "resources=VCPU:1")["provider_summaries"]["host"]["resources"]
    assert summary == {
        "VCPU": {"capacity": 7, "used": 0},
        "DISK_GB": {"capacity": -1, "used": 0},
    }


FLAT = [Provider(f"host{number}", None, {"VCPU": 4}) for number in range(21)]


@pytest.mark.parametrize(
    ("limits", "count"),
    [
        (SearchLimits(limit=20, most=20), 20),
        (SearchLimits(maximum=20, most=20), 20),
        (SearchLimits(limit=3, maximum=20), 3),
        (SearchLimits(limit=20, maximum=3), 3),
        (SearchLimits(most=21), 21),
    ],
)
def test_hosts_of_one_provider_come_up_to_the_limit(limits: SearchLimits, count: int) -> None:
    query, index = parse([("resources", "VCPU:1")], (1, 39)), writer_of(FLAT).index
    found = [candidate.slots() for candidate in Search(query, index, limits).candidates()]
    assert found == [(root,) for root in index.roots[:count].tolist()]


def test_a_search_of_hosts_of_one_provider_gives_up_when_its_time_is_over() -> None:
    query, index = parse([("resources", "VCPU:1")], (1, 39)), writer_of(FLAT).index
    times = iter([0.0, 31.0])
    with pytest.raises(OutOfTime):
        list(Search(query, index, deadline=Deadline(30.0, lambda: next(times))).candidates())
